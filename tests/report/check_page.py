"""Fails unless a report is well-formed, shows figures with their data, and needs nothing from elsewhere."""
import re
import sys
import xml.etree.ElementTree as tree

text = open(sys.argv[1], encoding="utf-8").read()
page = tree.fromstring(text)
figures = page.findall(".//figure")
assert len(figures) >= 18, f"{len(figures)} figures"
for figure in figures:
    shown = figure.find("svg") is not None or figure.find(".//table") is not None
    missing = any("Missing" in "".join(p.itertext()) for p in figure.findall("p"))
    assert shown or missing, tree.tostring(figure)[:200]
    assert figure.find("svg") is None or figure.find("details//table") is not None, figure.get("id")
    assert figure.find("figcaption//code") is not None, figure.get("id")
    plots = len(figure.findall("svg"))
    if figure.get("id").split("-")[0] in ("messages", "residuals", "scaling"):
        assert len(figure.findall("details//table")) == plots, f"{figure.get('id')}: {plots} plots"
assert not re.search(r'(src|href)=|url\(|@import|https?://', text), "the page asks for something from elsewhere"
for element in page.iter():
    for name, value in element.attrib.items():
        assert "nan" not in value.lower() or name in ("aria-label", "id"), f"{element.tag} {name}={value}"
        assert "inf" not in value.lower() or name in ("aria-label", "id"), f"{element.tag} {name}={value}"
