#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "report/drawing.h"
#include "report/report.h"
#include "report/verdict.h"

namespace prunex::report {
namespace {

std::string cell_html(const Cell& cell, const std::string& text) {
  const std::string line = cell.style ? legend_line(Style(*cell.style)) : "";
  if (cell.link.empty()) return line + escape(text);
  return line + fmt::format("<a href=\"{}\">{}</a>", escape(cell.link), escape(text));
}

std::string table_html(const Table& whole) {
  const Table table = without_empty_columns(whole);
  const auto texts = texts_of(table);
  std::vector<std::string> classes;
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (size_t i = 0; i < table.columns.size(); ++i) {
    classes.push_back(is_right_aligned(table, i) ? " class=\"num\"" : "");
    html += fmt::format("<th scope=\"col\"{}>{}</th>", classes.back(), escape(table.columns[i].name));
  }
  html += "</tr></thead><tbody>\n";
  for (size_t row = 0; row < texts.size(); ++row) {
    html += "<tr>";
    for (size_t i = 0; i < classes.size(); ++i) {
      html += fmt::format("<td{}>{}</td>", classes[i], cell_html(table.rows[row][i], texts[row][i]));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string legend_html(const Figure& figure) {
  std::string html;
  for (const auto& [name, style] : figure.legend) {
    html +=
        fmt::format("<li>{}{}</li>", figure.boxes ? legend_box(Style(style)) : legend_line(Style(style)), escape(name));
  }
  return html.empty() ? "" : fmt::format("<ul class=\"legend{}\">{}</ul>\n", figure.boxes ? " boxes" : "", html);
}

std::string data_html(const Figure& figure) {
  std::string tables;
  for (const auto& table : figure.tables) tables += table.rows.empty() ? "" : table_html(table);
  if (tables.empty() || figure.unfolded || (figure.drawings.empty() && !figure.folded)) return tables;
  return fmt::format("<details><summary>Data</summary>\n{}</details>\n", tables);
}

std::string figure_html(const Figure& figure, const std::string& id) {
  const bool wide = figure.drawings.empty() && !figure.folded;
  std::string html = fmt::format("<figure id=\"{}\"{}>\n<h4>{}</h4>\n{}", id, wide ? " class=\"wide\"" : "",
                                 escape(figure.title), legend_html(figure));
  for (const auto& drawing : figure.drawings) html += drawing;
  if (!figure.text.empty()) html += fmt::format("<figcaption>{}</figcaption>\n", escape(figure.text));
  if (!figure.missing.empty()) html += fmt::format("<p class=\"missing\">Left out: {}.</p>\n", escape(figure.missing));
  return html + data_html(figure) + "</figure>\n";
}

std::string chapter_html(const Chapter& chapter, size_t number) {
  if (chapter.figures.empty()) return "";
  std::string html = fmt::format("<h3>{}</h3>\n<div class=\"figures\">\n", escape(chapter.title));
  for (const auto& figure : chapter.figures) html += figure_html(figure, fmt::format("{}-{}", figure.id, number));
  return html + "</div>\n";
}

std::string verdict_html(const std::vector<std::string>& sentences) {
  std::string html = "<ul class=\"verdict\">";
  for (const auto& sentence : sentences) html += fmt::format("<li>{}</li>\n", escape(sentence));
  return html + "</ul>\n";
}

std::string list_html(const std::string& title, const std::vector<std::string>& entries) {
  std::string html;
  for (const auto& entry : entries) html += fmt::format("<li>{}</li>\n", escape(entry));
  return html.empty() ? "" : fmt::format("<h3>{}</h3>\n<ul>{}</ul>\n", title, html);
}

std::string section_html(const Section& section, size_t number, bool is_alone) {
  std::string html = fmt::format("<section id=\"task-{}\">\n", number);
  if (!is_alone) html += fmt::format("<h2>{}</h2>\n", escape(section.title));
  html += verdict_html(section.verdict);
  html += fmt::format("<p class=\"setup\">{}</p>\n<div class=\"summary\">{}</div>\n<p class=\"note\">{}</p>\n",
                      escape(section.setup), table_html(section.summary), escape(section.note));
  if (!section.differences.is_empty()) html += figure_html(section.differences, fmt::format("differences-{}", number));
  for (const auto& chapter : section.chapters) html += chapter_html(chapter, number);
  if (section.runs.rows.empty()) return html + "</section>\n";
  html += "<h3>Runs</h3>\n";
  if (!section.command.empty()) html += fmt::format("<p><code>{}</code></p>\n", escape(section.command));
  if (!section.own_options.rows.empty()) html += table_html(section.own_options);
  return html + table_html(section.runs) + "</section>\n";
}

/// Tasks with the first sentence of each.
std::string contents_html(const Page& page) {
  std::string html;
  for (size_t i = 0; i < page.sections.size() && page.sections.size() > 1; ++i) {
    html += fmt::format("<li><a href=\"#task-{}\">{}</a>: {}</li>\n", i, escape(page.sections[i].title),
                        escape(page.sections[i].verdict.front()));
  }
  return html.empty() ? "" : fmt::format("<ul class=\"contents\">{}</ul>\n", html);
}

std::string footer_html(const Footer& footer) {
  std::string html = "<footer>\n" + list_html("Assumed", footer.assumed) + list_html("Missing", footer.missing) +
                     list_html("Not read", footer.problems) +
                     list_html("Different builds, machines or sittings", footer.origins);
  html += fmt::format("<h3>About</h3>\n<p>{} <code>{}</code></p>\n", escape(footer.made), escape(footer.command));
  std::string sources, comparisons;
  for (const auto& source : footer.sources) {
    sources += (sources.empty() ? "<p>Read: " : ", ") + cell_html(source, source.word);
  }
  for (const auto& command : footer.comparisons) {
    comparisons += fmt::format("<p>Runs made by <code>{}</code></p>\n", escape(command));
  }
  return html + comparisons + (sources.empty() ? "" : sources + "</p>\n") + "</footer>\n";
}

namespace fs = std::filesystem;

std::string percent_encoded(const std::string& path) {
  std::string url;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte < 0x80 && std::isalnum(byte) != 0) || std::string("-._~/").find(c) != std::string::npos;
    url += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return url;
}

constexpr size_t kMostNames = 12;

/// "a, b and 3 more".
std::string list_of(const std::vector<std::string>& names) {
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i) list += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kMostNames ? list + fmt::format(" and {} more", names.size() - kMostNames) : list;
}

/// Runs by what is said of them.
using Groups = std::map<std::string, std::vector<std::string>>;

/// "commit c0ffee, prunex 0.1.0, LibTorch 2.11.0, on AMD EPYC, in bf16".
std::string maker_of(const Run& run) {
  std::string text = run.commit.empty() ? "no known commit" : "commit " + run.commit;
  const std::string version = run.prunex.empty() && run.summary ? run.summary->version : run.prunex;
  if (!version.empty()) text += ", prunex " + version;
  if (!run.libtorch.empty()) text += ", LibTorch " + run.libtorch;
  if (const std::string machine = run.machine(); !machine.empty()) text += ", on " + machine;
  const std::string precision = run.summary ? run.summary->precision : "";
  return precision.empty() ? text : text + ", in " + precision;
}

bool is_timed_elsewhere(const Run& run) {
  return !run.timed_on.empty() && run.timed_on != run.processor;
}

/// "timed 2026-01-02 10:00 UTC on AMD EPYC".
std::string timing_of(const Run& run) {
  if (run.timed.empty() && run.sitting.empty()) return "seconds from the runs themselves";
  std::string text = "timed";
  if (!run.sitting.empty()) text += " " + run.sitting;
  return is_timed_elsewhere(run) ? text + " on " + run.timed_on : text;
}

void add_if_several(std::vector<std::string>& lines, const Groups& groups) {
  for (const auto& [what, names] : groups) {
    if (groups.size() > 1) lines.push_back(what + ": " + list_of(names));
  }
}

void add(std::vector<std::string>& lines, const std::string& what, const std::vector<std::string>& names) {
  if (!names.empty()) lines.push_back(what + ": " + list_of(names));
}

}  // namespace

std::string to_html(const Page& page) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"/>\n<meta name=\"color-scheme\" content=\"light dark\"/>\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n",
      escape(page.title), kStyleSheet);
  html += contents_html(page);
  if (!page.footer.problems.empty()) html += "<p class=\"missing\">Some files could not be read: see the end.</p>\n";
  for (size_t i = 0; i < page.sections.size(); ++i) {
    html += section_html(page.sections[i], i, page.sections.size() == 1);
  }
  if (!page.others.empty()) {
    html += "<section>\n<div class=\"figures\">\n";
    for (const auto& figure : page.others) html += figure_html(figure, figure.id);
    html += "</div>\n</section>\n";
  }
  return html + footer_html(page.footer) + "</main>\n</body>\n</html>\n";
}

std::string link_to(const std::string& directory, const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) return "";
  const auto relative = fs::relative(directory, folder.empty() ? "." : folder, error);
  return error || relative.empty() ? "" : percent_encoded(relative.string() + "/");
}

std::vector<std::string> take_missing(std::vector<Chapter>& chapters) {
  std::vector<std::string> lines, reasons;
  std::map<std::string, std::vector<std::string>> titles;
  for (auto& [subject, figures] : chapters) {
    for (const auto& figure : figures) {
      if (!figure.is_empty()) continue;
      if (!titles.contains(figure.missing)) reasons.push_back(figure.missing);
      titles[figure.missing].push_back(figure.title);
    }
    std::erase_if(figures, [](const Figure& figure) { return figure.is_empty(); });
  }
  for (const auto& reason : reasons) lines.push_back(fmt::format("{}: {}", list_of(titles[reason]), reason));
  return lines;
}

std::vector<std::string> missing_of(const Task& task) {
  std::vector<std::string> lines, unfinished, repeated, single;
  for (const auto& variant : task.variants) {
    const size_t done = variant.finished().size(), all = variant.seeds();
    for (const Run* run : variant.repeated()) repeated.push_back(run->directory);
    if (done < all) unfinished.push_back(fmt::format("{} ({} of {})", variant.name, all - done, all));
    if (done == 1) single.push_back(variant.name);
  }
  add(lines, "not finished", unfinished);
  add(lines, "left out, the same options and seed again", repeated);
  add(lines, "one finished seed, so no interval", single);
  if (reference(task) == nullptr && task.variants.size() > 1) {
    lines.emplace_back("points against ddp: wanted a finished run of ddp");
  }
  return lines;
}

std::vector<std::string> origins_of(const std::vector<Run>& runs) {
  std::vector<std::string> lines;
  Groups makers, timings;
  std::set<std::pair<std::string, std::string>> seen;
  const bool some_elsewhere = std::any_of(runs.begin(), runs.end(), is_timed_elsewhere);
  for (const Run& run : runs) {
    const std::string name = run.name.empty() ? run.directory : run.name;
    makers[maker_of(run)].push_back(run.name.empty() ? name : fmt::format("{} seed {}", name, run.option("seed")));
    const std::string timing = timing_of(run);
    if (seen.emplace(timing, name).second) timings[timing].push_back(name);
  }
  add_if_several(lines, makers);
  if (timings.size() > 1 || some_elsewhere) {
    for (const auto& [what, names] : timings) add(lines, what, names);
  }
  return lines;
}

std::vector<std::string> missing_of(const Findings& findings) {
  std::vector<std::string> lines, failed;
  for (const auto& failure : findings.failures) failed.push_back(failure.name);
  add(lines, "failed", failed);
  add(lines, "not begun", findings.waiting);
  return lines;
}

}  // namespace prunex::report
