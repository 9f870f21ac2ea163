// Secrets, the keys that are made of them, and the proof that both ends of a connection know one.
#include "prunex/comm/meet/proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "prunex/comm/privacy.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tests::message;

const Privacy kFriends = {"correct horse battery staple"}, kOthers = {"incorrect horse battery staple"};

std::string hex(const KeyBytes& bytes) {
  std::string text;
  for (const unsigned byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

// RFC 4231, test cases 1 and 2.
TEST(Keys, AreMadeWithTheHmacOfTheStandard) {
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

// openssl kdf -keylen 32 -kdfopt digest:SHA256 -kdfopt "key:correct horse battery staple" -kdfopt "salt:prunex link 1"
// -kdfopt hexinfo:73746f726500746f6b656e HKDF
TEST(Keys, AreThoseOfHkdf) {
  EXPECT_EQ(hex(link_key(kFriends, "store", "token").bytes),
            "b14dd9c8f8e5b42e63f1cbbbdae4716cfa8ef1078627fb84fa9bbeef1846b656");
}

TEST(Keys, DifferWithSecretPurposeAndToken) {
  std::set<std::string> keys;
  for (const Privacy& privacy : {Privacy{}, kFriends, kOthers}) {
    for (const char* purpose : {"store", "door", "peer"}) {
      for (const char* token : {"", "1", "2"}) keys.insert(hex(link_key(privacy, purpose, token).bytes));
    }
  }
  EXPECT_EQ(keys.size(), 27U);
}

class Secrets : public testing::Test {
 protected:
  std::string write(const std::string& text, mode_t mode = 0600) {
    const std::string path = scratch_.path() + "/secret";
    std::filesystem::remove(path);  // one of mode 0400 opens for root alone
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  static std::string refusal(const std::string& path) {
    return message([&] { read_secret(path, [](const char*) -> const char* { return nullptr; }); });
  }

  const tests::Scratch scratch_;
};

TEST_F(Secrets, AreAFilesTextWithoutItsLastLineBreak) {
  const auto nothing = [](const char*) -> const char* { return nullptr; };
  EXPECT_EQ(read_secret(write("sixteen bytes, ok\n"), nothing), "sixteen bytes, ok");
  EXPECT_EQ(read_secret(write("sixteen bytes, ok\r\n", 0400), nothing), "sixteen bytes, ok");
  EXPECT_EQ(read_secret(write(" sixteen bytes, \n\n"), nothing), " sixteen bytes, \n");
  EXPECT_EQ(read_secret(write(std::string(kMostSecretBytes, 'x') + "\n"), nothing).size(), kMostSecretBytes);
}

TEST_F(Secrets, ComeFromTheVariableWhereNoFileIsNamed) {
  const auto variable = [](const char* name) -> const char* {
    return std::string(name) == "PRUNEX_SECRET" ? "of the variable, long enough" : nullptr;
  };
  EXPECT_EQ(read_secret("", variable), "of the variable, long enough");
  EXPECT_EQ(read_secret(write("of the file, long enough"), variable), "of the file, long enough");
  EXPECT_EQ(read_secret("", [](const char*) -> const char* { return nullptr; }), "");
  EXPECT_THAT(message([] { read_secret("", [](const char*) { return ""; }); }),
              HasSubstr("PRUNEX_SECRET: got an empty secret, wanted"));
}

TEST_F(Secrets, ThatOthersMayReadAreRefusedByName) {
  for (const mode_t mode : {0640, 0604, 0660, 0644, 0610}) {
    const auto text = refusal(write("sixteen bytes, ok", mode));
    EXPECT_THAT(text, HasSubstr("`secret_file`: " + scratch_.path() + "/secret: mode 0"));
    EXPECT_THAT(text, HasSubstr("lets others than its owner use it, wanted 0600 (chmod 600)"));
    EXPECT_THAT(text, Not(HasSubstr("sixteen")));
  }
}

TEST_F(Secrets, ThatAreNoneAreRefusedByNameAndNotShown) {
  EXPECT_THAT(refusal(write("")), HasSubstr("got an empty secret, wanted one such as `openssl rand -hex 32` prints"));
  EXPECT_THAT(refusal(write("\n")), HasSubstr("got an empty secret"));
  const auto text = refusal(write("short\n"));
  EXPECT_THAT(text, HasSubstr("got a secret of 5 bytes, wanted 16 to 1024, such as"));
  EXPECT_THAT(text, Not(HasSubstr("short")));
  EXPECT_THAT(refusal(write(std::string(5000, 'x'))), HasSubstr("got a secret of more than 1024 bytes"));
  EXPECT_THAT(refusal(scratch_.path() + "/nothing"), HasSubstr("/nothing: No such file or directory"));
  EXPECT_THAT(refusal(scratch_.path()), HasSubstr("it is not a regular file"));
  ASSERT_EQ(mkfifo((scratch_.path() + "/pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(scratch_.path() + "/pipe"), HasSubstr("it is not a regular file"));
}

/// Moves messages between two ends until neither has more to say; everything that passed, the caller's words first.
std::pair<std::string, std::string> talk(Proof& caller, Proof& answerer) {
  std::string from_caller, from_answerer;
  size_t caller_read = 0, answerer_read = 0;
  for (bool moved = true; moved;) {
    from_caller += caller.take_unsent();
    from_answerer += answerer.take_unsent();
    moved = false;
    const auto move = [&](Proof& to, const std::string& words, size_t& read) {
      const size_t wants = to.wants();
      if (wants == 0 || words.size() - read < wants) return;
      to.take(std::string_view(words).substr(read, wants));
      read += wants;
      moved = true;
    };
    move(caller, from_answerer, caller_read);
    move(answerer, from_caller, answerer_read);
  }
  return {from_caller, from_answerer};
}

TEST(Proof, ConvincesBothEndsThatKnowTheKey) {
  const LinkKey key = link_key(kFriends, "peer", "7");
  Proof caller(Side::kCaller, key), answerer(Side::kAnswerer, key);
  const auto [said, answered] = talk(caller, answerer);
  EXPECT_EQ(caller.wants(), 0U);
  EXPECT_EQ(answerer.wants(), 0U);
  EXPECT_EQ(said.size(), 80U);
  EXPECT_EQ(answered.size(), 80U);
  EXPECT_EQ(said.find(kFriends.secret), std::string::npos);
}

TEST(Proof, ConvincesNobodyOfAnotherKey) {
  Proof caller(Side::kCaller, link_key(kFriends, "peer")), answerer(Side::kAnswerer, link_key(kOthers, "peer"));
  EXPECT_THAT(message([&] { talk(caller, answerer); }), HasSubstr("it has another secret"));
  EXPECT_NE(caller.wants(), 0U);
  EXPECT_NE(answerer.wants(), 0U);
}

TEST(Proof, ThatWasHeardOnceProvesNothingAgain) {
  const LinkKey key = link_key(kFriends, "peer");
  Proof caller(Side::kCaller, key), answerer(Side::kAnswerer, key);
  const auto [said, answered] = talk(caller, answerer);
  const auto replay = [](Proof& to, const std::string& words) {
    size_t read = 0;
    while (to.wants() > 0) {
      const size_t wants = to.wants();
      to.take(std::string_view(words).substr(read, wants));
      read += wants;
    }
  };
  Proof next_answerer(Side::kAnswerer, key), next_caller(Side::kCaller, key);
  EXPECT_THAT(message([&] { replay(next_answerer, said); }), HasSubstr("it has another secret"));
  EXPECT_THAT(message([&] { replay(next_caller, answered); }), HasSubstr("it has another secret"));
}

// A stranger who calls the caller back: what one end proves is no proof of the other.
TEST(Proof, IsNotGivenToWhoSendsItBack) {
  const LinkKey key = link_key(kFriends, "peer");
  Proof first(Side::kCaller, key), second(Side::kCaller, key);
  Proof answerer(Side::kAnswerer, key);
  const std::string hello = answerer.take_unsent();
  for (Proof* caller : {&first, &second}) {
    caller->take(hello.substr(0, 16));
    caller->take(hello.substr(16));
  }
  const std::string said = first.take_unsent();
  EXPECT_THAT(message([&] { second.take(said.substr(48)); }), HasSubstr("it has another secret"));
}

TEST(Proof, EveryFlippedByteIsNoticed) {
  const LinkKey key = link_key(kFriends, "peer");
  for (size_t place = 0; place < 160; ++place) {
    Proof caller(Side::kCaller, key), answerer(Side::kAnswerer, key);
    size_t passed = 0;
    const auto carry = [&](Proof& from, Proof& to) {
      std::string words = from.take_unsent();
      for (char& byte : words) byte = static_cast<char>(byte ^ (passed++ == place ? 0x10 : 0));
      for (size_t read = 0, wants = to.wants(); read < words.size(); wants = to.wants()) {
        to.take(std::string_view(words).substr(read, wants));
        read += wants;
      }
    };
    const auto refused = message([&] {
      carry(answerer, caller);
      carry(caller, answerer);
      carry(answerer, caller);
    });
    EXPECT_THAT(refused, testing::AnyOf(HasSubstr("another program"), HasSubstr("another secret"))) << place;
  }
}

}  // namespace
}  // namespace prunex::comm
