"""Fails unless a report is well-formed, shows figures with their data, and needs nothing from elsewhere."""
import re
import sys
import xml.etree.ElementTree as tree

text = open(sys.argv[1], encoding="utf-8").read()
page = tree.fromstring(text)
figures = page.findall(".//figure")
footer = page.find(".//footer")
absent = [title for entry in footer.findall("ul/li") if re.search("no run|wanted", "".join(entry.itertext()))
          for title in "".join(entry.itertext()).split(":")[0].split(", ")]
assert len(figures) + len(absent) >= 18, f"{len(figures)} figures, {len(absent)} missing"
for figure in figures:
    assert figure.find("svg") is not None or figure.find(".//table") is not None, tree.tostring(figure)[:200]
    assert figure.find("svg") is None or figure.find(".//table") is not None, figure.get("id")
    assert figure.find("h4").text, figure.get("id")
    plots = len(figure.findall("svg"))
    if figure.get("id").split("-")[0] in ("messages", "residuals", "scaling"):
        assert len(figure.findall("details//table")) == plots, f"{figure.get('id')}: {plots} plots"
assert not re.search(r"url\(|@import|//", page.find(".//style").text), "a style from elsewhere"
allowed = set("html head meta title style body main h1 h2 h3 h4 p ul li a code section div table thead tbody tr th td "
              "figure figcaption details summary footer svg line polyline polygon path rect text image".split())
for element in page.iter():
    assert element.tag in allowed, f"an element {element.tag}"
    assert not {name for name in element.attrib if name.startswith("on") or name in ("src", "style")}, element.attrib
for image in page.findall(".//image"):
    assert re.fullmatch(r"data:image/png;base64,[A-Za-z0-9+/]+={0,2}", image.get("href")), image.get("href")
    del image.attrib["href"]
for link in page.findall(".//a"):
    assert re.fullmatch(r"(#[\w-]+|[\w.~%-][\w.~%/-]*)", link.get("href")), f"a link to {link.get('href')}"
for table in page.findall(".//table"):
    width = len(table.findall("thead//th"))
    for column in range(1, width):
        cells = ["".join(row[column].itertext()) for row in table.findall("tbody/tr")]
        assert any(cell != "–" for cell in cells), f"an empty column, {table.findall('thead//th')[column].text}"
for element in page.iter():
    for name, value in element.attrib.items():
        assert "nan" not in value.lower() or name in ("aria-label", "id"), f"{element.tag} {name}={value}"
        assert "inf" not in value.lower() or name in ("aria-label", "id"), f"{element.tag} {name}={value}"
