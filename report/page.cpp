#include "report/page.h"

#include <fmt/format.h>

#include "report/canvas.h"
#include "report/style_sheet.h"

namespace prunex::report {
namespace {

bool is_number(const Cell& cell) {
  return cell.number || cell.word.empty();
}

std::string table_html(const Table& table) {
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (const auto& column : table.columns) html += fmt::format("<th>{}</th>", escape(column.name));
  html += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      html += fmt::format("<td{}>{}</td>", is_number(row[i]) ? " class=\"num\"" : "",
                          escape(text_of(table.columns[i], row[i])));
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
  if (figure.table.rows.empty()) return "";
  if (figure.drawings.empty()) return table_html(figure.table);
  std::string tables = table_html(figure.table);
  for (const auto& table : figure.more_tables) tables += table_html(table);
  return fmt::format("<details><summary>Data</summary>\n{}</details>\n", tables);
}

std::string setup_html(const Section& section) {
  return fmt::format("<span class=\"setup\">{} <code>{}</code></span>", escape(section.setup), escape(section.command));
}

/// `setup`: HTML of what is stated below every figure of a section.
std::string figure_html(const Figure& figure, const std::string& id, const std::string& setup) {
  std::string html = fmt::format("<figure id=\"{}\">\n<h3>{}</h3>\n{}", id, escape(figure.title), legend_html(figure));
  for (const auto& drawing : figure.drawings) html += drawing;
  if (!figure.missing.empty()) html += fmt::format("<p class=\"missing\">Missing: {}.</p>\n", escape(figure.missing));
  html += fmt::format("<figcaption>{}{}{}</figcaption>\n", escape(figure.text), figure.text.empty() ? "" : " ", setup);
  return html + data_html(figure) + "</figure>\n";
}

std::string others_html(const Page& page) {
  std::string html, setup;
  for (const auto& command : page.comparisons) setup += fmt::format(" <code>{}</code>", escape(command));
  if (!setup.empty()) setup = fmt::format("<span class=\"setup\">All tasks of{}</span>", setup);
  for (const auto& figure : page.others) html += figure_html(figure, figure.id, setup);
  return html.empty() ? "" : fmt::format("<section>\n<div class=\"figures\">\n{}</div>\n</section>\n", html);
}

std::string section_html(const Section& section, size_t number) {
  std::string html = fmt::format(
      "<section>\n<h2>{}</h2>\n<p>{}</p>\n<p><code>{}</code></p>\n{}<p class=\"note\">{}</p>\n", escape(section.title),
      escape(section.setup), escape(section.command), table_html(section.summary), escape(section.note));
  html += "<div class=\"figures\">\n";
  for (const auto& figure : section.figures) {
    html += figure_html(figure, fmt::format("{}-{}", figure.id, number), setup_html(section));
  }
  return html + "</div>\n<h3>Runs</h3>\n" + table_html(section.runs) + "</section>\n";
}

std::string problems_html(const std::vector<std::string>& problems) {
  std::string html;
  for (const auto& problem : problems) html += fmt::format("<li>{}</li>", escape(problem));
  return html.empty() ? "" : fmt::format("<h3>Not read</h3><ul class=\"missing\">{}</ul>\n", html);
}

}  // namespace

std::string to_html(const Page& page) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"/>\n<meta name=\"color-scheme\" content=\"light dark\"/>\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n",
      escape(page.title), kStyleSheet);
  html += problems_html(page.problems);
  for (size_t i = 0; i < page.sections.size(); ++i) html += section_html(page.sections[i], i);
  html += others_html(page);
  return html +
         fmt::format("<footer>Made by <code>{}</code>.</footer>\n</main>\n</body>\n</html>\n", escape(page.command));
}

}  // namespace prunex::report
