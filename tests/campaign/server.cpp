// The command many times over without loading its libraries each time: campaign.py writes a line of words with tabs
// between them, a folder first; a child runs prunex there with the others, its output in the folder's out and err.
// Answers with the child's process id, then with its exit code, or minus the signal that ended it.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "tools/prunex/command_line.h"
#include "tools/prunex/standard_streams.h"

namespace {

void redirect(int descriptor, const char* path, int flags) {
  const int file = open(path, flags, 0644);
  dup2(file, descriptor);
  close(file);
}

[[noreturn]] void run_child(std::vector<std::string> words) {
  setpgid(0, 0);
  if (chdir(words[0].c_str()) != 0) _exit(126);
  redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
  redirect(STDOUT_FILENO, "out", O_WRONLY | O_CREAT | O_TRUNC);
  redirect(STDERR_FILENO, "err", O_WRONLY | O_CREAT | O_TRUNC);
  words[0] = "prunex";
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::exit(prunex::tools::run_command_line(static_cast<int>(words.size()), argv.data()));
}

}  // namespace

int main(int argc, char** argv) {
  prunex::tools::prepare_standard_streams();
  if (argc > 1) return prunex::tools::run_command_line(argc, argv);  // what the command starts as itself
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> words;
    std::istringstream stream(line);
    for (std::string word; std::getline(stream, word, '\t');) words.push_back(word);
    const int child = fork();
    if (child == 0) run_child(words);
    std::cout << child << std::endl;
    int status = 0;
    waitpid(child, &status, 0);
    std::cout << (WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)) << std::endl;
  }
}
