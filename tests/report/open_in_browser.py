"""Opens a report in headless Chromium, light, dark and narrow; prints what it finds wrong and fails if there is anything.

usage: open_in_browser.py BROWSER PAGE.html
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Runs in the opened page: every figure and drawing has a size, no text leaves its drawing, all can be read.
LOOK = """<script>
const faults = [];
const brightness = colour => {
  const [r, g, b] = colour.match(/[0-9.]+/g).map(Number);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const paper = brightness(getComputedStyle(document.body).backgroundColor);
const figures = document.querySelectorAll("figure");
for (const figure of figures) {
  const fault = what => faults.push(figure.id + ": " + what);
  const sized = (element, name) => {
    const box = element.getBoundingClientRect();
    if (box.width < 100 || box.height < 20) fault(`${name} of ${box.width} x ${box.height}`);
    return box;
  };
  sized(figure, "a figure");
  if (!figure.querySelector("svg, table, .missing")) fault("nothing to see");
  for (const drawing of figure.querySelectorAll(":scope > svg")) {
    const area = sized(drawing, "a drawing"), boxes = [];
    for (const text of drawing.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      for (const [other, said] of boxes) {
        const apart = box.left > other.right - 1 || other.left > box.right - 1 || box.top > other.bottom - 3 ||
          other.top > box.bottom - 3;
        if (!apart) fault(`'${text.textContent}' lies on '${said}'`);
      }
      boxes.push([box, text.textContent]);
      const inside = box.left > area.left - 1 && box.right < area.right + 1 && box.top > area.top - 1 &&
        box.bottom < area.bottom + 1;
      if (!inside) fault(`'${text.textContent}' leaves its drawing`);
      if (Math.abs(brightness(getComputedStyle(text).fill) - paper) < 60) fault(`'${text.textContent}' is faint`);
    }
  }
}
for (const cell of document.querySelectorAll(".num")) {
  if (getComputedStyle(cell).textAlign !== "right") faults.push(`'${cell.textContent}' is not aligned to the right`);
}
if (document.scripts.length !== 1) faults.push("a script of the page's own");
if (document.documentElement.scrollWidth > window.innerWidth) {
  const wide = [...document.querySelectorAll("body *")].filter(element =>
    !element.parentElement.closest(".scroll, svg") && element.getBoundingClientRect().right > window.innerWidth);
  faults.push(`the page scrolls sideways, ${document.documentElement.scrollWidth} of ${window.innerWidth}: ${wide.map(e => `${e.tagName} ${e.textContent.slice(0, 60)}`).join(", ")}`);
}
document.title = `${paper > 128 ? "light" : "dark"}, ${figures.length} figures: ${faults.join("; ")}`;
</script>"""


def title(browser: str, page: Path, scheme: str, width: int, profile: str) -> str:
    """Of the page after LOOK; what the browser complained of is appended."""
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               "--enable-logging=stderr", f"--user-data-dir={profile}", f"--window-size={width},1000",
               f"--blink-settings=preferredColorScheme={scheme}", "--dump-dom", page.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.search("<title>(.*?)</title>", result.stdout, re.DOTALL)
    complaints = "".join(line for line in result.stderr.splitlines() if "CONSOLE" in line)
    return (found.group(1) if found else f"no page: {result.stderr[-500:]}") + complaints


def main() -> int:
    browser, page = sys.argv[1], Path(sys.argv[2]).resolve()
    text = page.read_text(encoding="utf-8")
    figures = text.count("<figure ")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "page.html"
        copy.write_text(text.replace("</body>", LOOK + "</body>"), encoding="utf-8")
        for scheme, name, width in (("1", "light", 1400), ("0", "dark", 1400), ("1", "light", 600)):
            got = title(browser, copy, scheme, width, folder + "/profile")
            if got != f"{name}, {figures} figures: ":
                print(f"{width} pixels, wanted {name} and {figures} figures without faults: {got}")
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
