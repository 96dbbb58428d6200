"""A page as headless Chromium lays it out: measured by a script beside it, since the page allows none of its own."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HARNESS = """<!DOCTYPE html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<style>body {{ margin: 0 }} iframe {{ border: 0; width: {width}px; height: 900px }}</style>
<iframe srcdoc="{page}"></iframe><pre id="found"></pre><script>{script}</script>"""
SCRIPT = """
const luminance = ([r, g, b]) => [r, g, b].map(x => x / 255)
  .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
  .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
const numbers = color => (color.match(/[\\d.]+/g) || []).map(Number);
const measure = (document, window) => {
  const root = document.documentElement, texts = [], overlaps = [];
  const behind = node => {
    for (; node; node = node.parentElement) {
      const color = numbers(window.getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  for (const node of document.body.querySelectorAll("*")) {
    const own = [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
    if (!own || !node.getClientRects().length) continue;
    const style = window.getComputedStyle(node), drawn = node.namespaceURI.endsWith("svg");
    const turned = drawn && node.getScreenCTM(), scale = drawn ? Math.hypot(turned.a, turned.b) : 1;
    texts.push({text: node.textContent.trim().slice(0, 40), pixels: parseFloat(style.fontSize) * scale,
      contrast: contrast(numbers(drawn ? style.fill : style.color), behind(node))});
  }
  for (const picture of document.querySelectorAll("svg")) {
    const words = [...picture.querySelectorAll("text")].map(word => [word.textContent, word.getBoundingClientRect()]);
    const frame = picture.getBoundingClientRect();
    words.forEach(([word, a], i) => {
      if (a.right > frame.right + 1 || a.left < frame.left - 1) overlaps.push(word + " leaves " + picture.ariaLabel);
      for (const [other, b] of words.slice(i + 1))
        if (a.right > b.left + 1 && b.right > a.left + 1 && a.bottom > b.top + 2 && b.bottom > a.top + 2)
          overlaps.push(word + " on " + other + " in " + picture.ariaLabel);
    });
  }
  return {width: root.clientWidth, scrollWidth: root.scrollWidth, dark: window.matchMedia("(prefers-color-scheme: dark)").matches,
    background: numbers(window.getComputedStyle(document.body).backgroundColor), texts, overlaps};
};
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {
  document.querySelector("#found").textContent = JSON.stringify(measure(frame.contentDocument, frame.contentWindow));
});
"""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What was found, and what the browser's console said."""

    found: dict[str, Any]
    console: list[str]


def lay_out(page: str, folder: Path, *, width: int, dark: bool) -> Layout:
    """In a window of so many CSS pixels. `folder` holds the browser's own files."""
    assert CHROMIUM is not None
    harness = folder / "harness.html"
    harness.write_text(HARNESS.format(width=width, page=html.escape(page), script=SCRIPT), encoding="utf-8")
    words = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width + 100},1000",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--virtual-time-budget=10000",
        "--dump-dom",
        harness.as_uri(),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    [found] = re.findall(r'<pre id="found">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    return Layout(
        found=json.loads(html.unescape(found)),
        console=[line for line in done.stderr.splitlines() if "CONSOLE" in line],
    )
