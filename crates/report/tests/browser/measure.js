// Shows `page` in a frame of each width and notes what a reader would stumble over, as JSON in <pre id="measured">.
const wrong = [];
let dark = false;

// The channels of a colour as the browser writes it, 0 to 255, and its opacity.
function channels(colour) {
  const parts = colour.match(/[\d.]+/g).map(Number);
  // color-mix() gives color(srgb 0.1 0.2 0.3 / 0.5).
  return colour.startsWith("color(") ? [...parts.slice(0, 3).map((part) => part * 255), parts[3] ?? 1] : [...parts.slice(0, 3), parts[3] ?? 1];
}

function luminance([red, green, blue]) {
  const part = (value) => ((value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
}

// The contrast of text against what lies behind it; WCAG 2.2 asks for 4.5.
function contrast(view, element, colour) {
  const layers = [];
  for (let behind = element; behind; behind = behind.parentElement) {
    const paper = channels(view.getComputedStyle(behind).backgroundColor);
    if (paper[3] > 0) layers.unshift(paper);
    if (paper[3] === 1) break;
  }
  const paper = layers.reduce((below, [red, green, blue, part]) => [red, green, blue].map((value, i) => value * part + below[i] * (1 - part)), [255, 255, 255]);
  const [light, dark] = [luminance(channels(colour)), luminance(paper)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

// The contrast of a figure in a chart against the cell of colour that it lies on.
function contrastOnCell(view, text) {
  const at = text.getBBox();
  const [x, y] = [at.x + at.width / 2, at.y + at.height / 2];
  const holds = (cell) => cell.x.baseVal.value <= x && x <= cell.x.baseVal.value + cell.width.baseVal.value && cell.y.baseVal.value <= y && y <= cell.y.baseVal.value + cell.height.baseVal.value;
  const cell = [...text.ownerSVGElement.querySelectorAll("rect.cell")].find(holds);
  const style = view.getComputedStyle(cell), part = parseFloat(style.fillOpacity);
  const paper = channels(view.getComputedStyle(text.closest(".card")).backgroundColor);
  const behind = channels(style.fill).slice(0, 3).map((value, i) => value * part + paper[i] * (1 - part));
  const [light, dark] = [luminance(channels(view.getComputedStyle(text).fill)), luminance(behind)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

function shown(element) {
  const box = element.getBoundingClientRect();
  return box.width > 0 && box.height > 0;
}

function measure(frame, width) {
  const view = frame.contentWindow, document_ = frame.contentDocument;
  const tell = (what) => wrong.push(`${width} px: ${what}`);
  dark = view.matchMedia("(prefers-color-scheme: dark)").matches;
  // Closed parts are looked at too.
  document_.querySelectorAll("details").forEach((part) => (part.open = true));
  if (document_.querySelectorAll("h1").length !== 1) tell("a page has one first heading");
  const rules = [...document_.styleSheets].flatMap((sheet) => [...sheet.cssRules]).map((rule) => rule.selectorText ?? "");
  if (!rules.some((selector) => selector.includes(":focus-visible"))) tell("nothing shows where the keyboard is");
  const requests = view.performance.getEntriesByType("resource");
  requests.forEach((request) => tell(`a request: ${request.name}`));
  const root = document_.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    tell(`the page is ${root.scrollWidth} px wide`);
  }
  for (const svg of document_.querySelectorAll("svg.chart")) {
    if (!shown(svg)) continue;
    const frame_ = svg.getBoundingClientRect(), scale = svg.getScreenCTM().a;
    const name = svg.getAttribute("aria-label");
    for (const part of ["title", "desc"]) {
      const text = svg.querySelector(`:scope > ${part}`)?.textContent ?? "";
      if (!text || /NaN|undefined|Infinity/.test(text)) tell(`${name}: <${part}> says "${text}"`);
    }
    const texts = [...svg.querySelectorAll("text")].filter(shown);
    const boxes = texts.map((text) => text.getBoundingClientRect());
    texts.forEach((text, index) => {
      const size = parseFloat(view.getComputedStyle(text).fontSize) * scale, box = boxes[index];
      if (size < 10) tell(`${name}: "${text.textContent}" is ${size.toFixed(1)} px high`);
      if (box.left < frame_.left - 1 || box.right > frame_.right + 1 || box.top < frame_.top - 1 || box.bottom > frame_.bottom + 1) {
        tell(`${name}: "${text.textContent}" is clipped`);
      }
      boxes.slice(index + 1).forEach((other, later) => {
        const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        if (across > 1 && down > 3) {
          tell(`${name}: "${text.textContent}" and "${texts[index + 1 + later].textContent}" overlap`);
        }
      });
    });
  }
  for (const element of document_.querySelectorAll("body *")) {
    const ownText = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!ownText || !shown(element) || ["STYLE", "title", "desc"].includes(element.tagName)) continue;
    const style = view.getComputedStyle(element);
    const found = contrast(view, element, element.closest("svg") ? style.fill : style.color);
    if (found < 4.5) tell(`"${element.textContent.slice(0, 40)}" has a contrast of ${found.toFixed(1)}`);
  }
  for (const text of document_.querySelectorAll("text.cell-value")) {
    const found = shown(text) ? contrastOnCell(view, text) : Infinity;
    if (found < 4.5) tell(`"${text.textContent}" has a contrast of ${found.toFixed(1)} on its cell`);
  }
  // Text outside of charts ends where its box ends, or its box scrolls.
  for (const element of document_.querySelectorAll("h1, h2, h3, p, li, .tile *, .verdict *, header *")) {
    if (element.closest("svg") || !shown(element)) continue;
    if (element.scrollWidth > element.clientWidth + 1 && view.getComputedStyle(element).display !== "inline") {
      tell(`<${element.tagName}> "${element.textContent.slice(0, 40)}" is wider than its box`);
    }
  }
  for (const box of document_.querySelectorAll(".scroll")) {
    const style = view.getComputedStyle(box);
    if (box.tabIndex !== 0 || !box.getAttribute("aria-label")) tell("a table cannot be reached by the keyboard, or has no name");
    if (box.scrollWidth > box.clientWidth + 1 && (style.overflowX !== "auto" || style.backgroundImage === "none")) {
      tell("a table is cut off, and nothing shows that it scrolls");
    }
  }
  for (const table of document_.querySelectorAll("table")) {
    if ([...table.querySelectorAll("th")].some((cell) => !cell.scope)) tell("a header cell has no scope");
  }
}

const widths = [420, 800, 1400];
let left = widths.length;
for (const width of widths) {
  const frame = document.createElement("iframe");
  frame.style = `width:${width}px;height:3000px;border:0;flex:none`;
  frame.srcdoc = page;
  frame.onload = () => {
    frame.contentWindow.onerror = (what) => wrong.push(`${width} px: ${what}`);
    measure(frame, width);
    left -= 1;
    if (left === 0) {
      const result = document.createElement("pre");
      result.id = "measured";
      result.hidden = true;
      result.textContent = JSON.stringify({ dark, wrong });
      document.body.append(result);
    }
  };
  document.body.append(frame);
}
