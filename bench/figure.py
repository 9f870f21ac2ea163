#!/usr/bin/env python3
"""A figure of a page that prunex report wrote, its plots one below the other with the legend, as a drawing of its own.

    bench/figure.py report.html accuracy-time-0 accuracy.svg

Figures are named by their id in the page."""
import sys
import xml.etree.ElementTree as xml

SVG = "http://www.w3.org/2000/svg"
LINE, GAP = 20, 8


def write_figure(page, name, path):
    whole = xml.parse(page)
    figure = next((one for one in whole.iter("figure") if one.get("id") == name), None)
    plots = [] if figure is None else figure.findall("svg")
    if not plots:
        there = [one.get("id") for one in whole.iter("figure") if one.find("svg") is not None]
        raise ValueError(f"{page}: '{name}' is no figure with a plot; wanted one of {', '.join(there)}")
    drawing = xml.Element("svg", xmlns=SVG)
    xml.SubElement(drawing, "style").text = whole.find(".//style").text
    width = top = 0
    for plot in plots:
        size = list(map(float, plot.get("viewBox").split()[2:]))
        plot.attrib |= {"y": f"{top:g}", "width": f"{size[0]:g}", "height": f"{size[1]:g}"}
        drawing.append(plot)
        width, top = max(width, size[0]), top + size[1]
    for entry in figure.findall("ul/li"):
        line = entry.find("svg")
        line.attrib |= {"x": "80", "y": f"{top:g}", "width": "34", "height": "12", "style": "width:34px;height:12px"}
        xml.SubElement(drawing, "text", x="122", y=f"{top + 10:g}").text = line.tail
        line.tail = None
        drawing.append(line)
        top += LINE
    drawing.set("viewBox", f"0 0 {width:g} {top + GAP:g}")
    xml.ElementTree(drawing).write(path, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: bench/figure.py PAGE FIGURE OUTPUT.svg")
    try:
        write_figure(*sys.argv[1:])
    except (OSError, ValueError, xml.ParseError) as problem:
        sys.exit(f"figure.py: {problem}")
