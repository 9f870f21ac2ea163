#include <fmt/format.h>

#include <algorithm>

#include "report/figures.h"
#include "report/format.h"
#include "report/plot.h"

namespace prunex::report {
namespace {

constexpr size_t kMostClasses = 40, kMostMatrices = 4, kMostPairs = 25, kMostPictures = 18;

/// Of every class the share of its images that is taken for each.
std::vector<std::vector<double>> shares_of(const Answers& answers) {
  const size_t classes = answers.classes.size();
  std::vector<std::vector<double>> shares(classes, std::vector<double>(classes));
  std::vector<double> images(classes);
  for (const auto& count : answers.counts)
    images[static_cast<size_t>(count.label)] += static_cast<double>(count.images);
  for (const auto& count : answers.counts) {
    const auto label = static_cast<size_t>(count.label);
    shares[label][static_cast<size_t>(count.answer)] = static_cast<double>(count.images) / images[label];
  }
  return shares;
}

/// The pairs that are taken for each other most often.
void add_pairs(Table& table, const std::string& name, const Answers& answers) {
  std::vector<Answers::Count> wrong;
  for (const auto& count : answers.counts) {
    if (count.label != count.answer) wrong.push_back(count);
  }
  std::stable_sort(wrong.begin(), wrong.end(), [](const auto& a, const auto& b) { return a.images > b.images; });
  wrong.resize(std::min(wrong.size(), kMostPairs));
  for (const auto& [label, answer, images] : wrong) {
    table.rows.push_back({name, answers.classes[static_cast<size_t>(label)],
                          answers.classes[static_cast<size_t>(answer)], static_cast<double>(images)});
  }
}

/// Those with an image, as pictures and as rows of the table.
std::vector<Picture> add_mistakes(Table& table, const std::string& name, const Answers& answers) {
  std::vector<Picture> pictures;
  for (const auto& mistake : answers.mistakes) {
    if (mistake.png.empty() || pictures.size() == kMostPictures) continue;
    const auto& label = answers.classes[static_cast<size_t>(mistake.label)];
    const auto& answer = answers.classes[static_cast<size_t>(mistake.answer)];
    pictures.push_back(
        {mistake.png, "is " + label, "not " + answer, fmt::format("{} taken for {} {}", label, answer, mistake.file)});
    table.rows.push_back({name, label, answer, mistake.confidence, mistake.file});
  }
  return pictures;
}

/// The first of a variant's runs that has some.
const Run* with_answers(const Variant& variant) {
  const auto run = std::find_if(variant.runs.begin(), variant.runs.end(),
                                [](const Run* r) { return r->answers && !r->answers->counts.empty(); });
  return run == variant.runs.end() ? nullptr : *run;
}

/// Beside what else stands in the line above a drawing.
std::string title_of(const Variant& variant, const Run& run) {
  constexpr size_t kLongest = 40;
  return fmt::format("{}, seed {}", shortened(variant.name, kLongest), run.option("seed"));
}

}  // namespace

Figure mistakes_figure(const Task& task) {
  Figure figure{.id = "mistakes", .title = "The most confident mistakes"};
  Table table{{{"run", {}}, {"image of", {}}, {"taken for", {}}, {"sure", Unit::kShare}, {"file", {}}}, {}};
  for (const auto& variant : task.variants) {
    const Run* run = with_answers(variant);
    if (run == nullptr || figure.drawings.size() == kMostMatrices) continue;
    const auto pictures = add_mistakes(table, variant.name, *run->answers);
    if (!pictures.empty()) figure.drawings.push_back(draw_pictures(title_of(variant, *run), pictures));
  }
  if (figure.drawings.empty()) {
    figure.missing = "no run has an answers.json with images";
    return figure;
  }
  figure.tables = {std::move(table)};
  figure.text = "Test images that the network that shipped is wrong about and sure of, the surest first.";
  return figure;
}

Figure answers_figure(const Task& task) {
  Figure figure{.id = "answers", .title = "What is taken for what"};
  Table table{{{"run", {}}, {"images of", {}}, {"taken for", {}}, {"number", {}, 7}}, {}};
  for (const auto& variant : task.variants) {
    const Run* run = with_answers(variant);
    if (run == nullptr || figure.drawings.size() == kMostMatrices) continue;
    const Answers& answers = *run->answers;
    const auto title = title_of(variant, *run) +
                       (answers.top5_accuracy ? ", among its first five " + percent(*answers.top5_accuracy) : "");
    if (answers.classes.size() <= kMostClasses) {
      figure.drawings.push_back(draw_matrix(title, answers.classes, shares_of(answers)));
    }
    add_pairs(table, variant.name, answers);
  }
  if (table.rows.empty() && figure.drawings.empty()) {
    figure.missing = "no run has an answers.json";
    return figure;
  }
  figure.tables = {std::move(table)};
  figure.text =
      "Test images of a class, row by row, and what the network that shipped takes them for, in percent of the row; "
      "the diagonal is right. The table has the pairs that are mixed up most often.";
  return figure;
}

}  // namespace prunex::report
