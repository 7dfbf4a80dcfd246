// Draws the charts of a report from the page's JSON block, and gives each one a legend, export
// buttons and keys. The numbers stand in the page's tables already.
(() => {
  "use strict";

  const data = JSON.parse(document.getElementById("report-data").textContent);
  const root = document.documentElement;
  const spoken = document.getElementById("spoken");
  const drawn = [];  // {chart, model, place}
  const { colourOf, ground, gridRange, ink, isDark, pointText, rampColour, settingsOf, short } =
    charts;

  // ------------------------------------------------------------ around each chart

  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };

  function legendOf(model) {
    const list = element("ul", { className: "legend" });
    const add = (text, style, className = "") => {
      const sign = element("i", { className });
      Object.assign(sign.style, style);
      list.append(element("li", {}, sign, text));
    };
    if (model.kind === "grid") {
      const { low, high } = gridRange(model);
      add(`${short(low)} to ${short(high)}: ${model.y.title}`,
          { background: `linear-gradient(90deg, ${rampColour(0, model.tone)}, ` +
                        `${rampColour(1, model.tone)})` }, "ramp");
    } else if (model.series.length > 1) {
      model.series.forEach((series, i) => {
        if (series.mark === "dashed") add(series.name, { borderColor: colourOf(model, i) }, "rule");
        else add(series.name, { background: colourOf(model, i) });
      });
    }
    const bands = new Set(model.bands.map(([, label]) => label));
    for (const label of bands) {
      add(label, { background: isDark() ? "rgba(170,182,194,.35)" : "rgba(90,100,110,.25)" });
    }
    for (const [, label] of model.rules) add(label, { borderColor: ink() }, "rule");
    return list;
  }

  const fileName = (model, ending) => `heteroperf-${model.id}.${ending}`;

  function download(url, name) {
    const link = element("a", { href: url, download: name });
    link.click();
  }

  function csvOf(table) {
    const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    return [...table.rows]
      .map((row) => [...row.cells].map((cell) => quoted(cell.textContent)).join(","))
      .join("\r\n") + "\r\n";
  }

  function saveCsv(model) {
    const blob = new Blob([csvOf(document.getElementById(`${model.id}-table`))],
                          { type: "text/csv;charset=utf-8" });
    const url = URL.createObjectURL(blob);
    download(url, fileName(model, "csv"));
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  // With its ground, which a canvas does not have.
  function savePng(entry) {
    const source = entry.chart.canvas;
    const copy = element("canvas", { width: source.width, height: source.height });
    const ctx = copy.getContext("2d");
    ctx.fillStyle = ground();
    ctx.fillRect(0, 0, copy.width, copy.height);
    ctx.drawImage(source, 0, 0);
    download(copy.toDataURL("image/png"), fileName(entry.model, "png"));
  }

  function exportButtons(entry) {
    const named = (text, action) => {
      const button = element("button", { type: "button", textContent: text });
      button.setAttribute("aria-label", `${text} of “${entry.model.title}”`);
      button.addEventListener("click", action);
      return button;
    };
    return element("div", { className: "export" }, named("PNG", () => savePng(entry)),
                   named("CSV", () => saveCsv(entry.model)));
  }

  // Left and right go through the points of a series, up and down through the series.
  function addKeys(entry) {
    const { chart, model } = entry;
    let set = 0, index = -1;
    const show = () => {
      const size = chart.data.datasets[set].data.length;
      if (size === 0) return;
      index = Math.max(0, Math.min(size - 1, index));
      const place = [{ datasetIndex: set, index }];
      const at = chart.getDatasetMeta(set).data[index];
      chart.setActiveElements(place);
      chart.tooltip.setActiveElements(place, at ? { x: at.x, y: at.y } : { x: 0, y: 0 });
      chart.update("none");
      spoken.textContent = pointText(model, chart, set, index);
    };
    const moves = {
      ArrowRight: () => (index += 1), ArrowLeft: () => (index -= 1),
      ArrowDown: () => (set = Math.min(chart.data.datasets.length - 1, set + 1)),
      ArrowUp: () => (set = Math.max(0, set - 1)),
      Home: () => (index = 0), End: () => (index = Infinity),
    };
    const clear = () => {
      chart.setActiveElements([]);
      chart.tooltip.setActiveElements([], { x: 0, y: 0 });
      chart.update("none");
    };
    chart.canvas.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return clear();
      if (!moves[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      moves[event.key]();
      show();
    });
    chart.canvas.addEventListener("blur", clear);
    entry.clear = clear;
  }

  function draw(model) {
    const figure = document.querySelector(`figure[data-chart="${model.id}"]`);
    const canvas = element("canvas", { tabIndex: 0 });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Chart: ${model.title}. Arrow keys go through its values.`);
    canvas.setAttribute("aria-describedby", `${model.id}-what`);
    const place = element("div", { className: "drawing" }, canvas);
    place.style.height = `${charts.heightOf(model, figure.clientWidth)}px`;
    const details = figure.querySelector("details");
    figure.insertBefore(place, figure.querySelector("figcaption") || details);
    const entry = { model, place, legend: legendOf(model) };
    place.after(entry.legend);
    entry.chart = new Chart(canvas, settingsOf(model));
    figure.insertBefore(exportButtons(entry), details);
    addKeys(entry);
    drawn.push(entry);
  }

  // ------------------------------------------------------------ light and dark, printing

  function nameSwitch() {
    const button = document.getElementById("theme");
    button.setAttribute("aria-pressed", String(isDark()));
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Switch to light colours"
                                               : "Switch to dark colours");
  }

  function recolour() {
    for (const entry of drawn) {
      const fresh = settingsOf(entry.model);
      entry.chart.data = fresh.data;
      entry.chart.options = fresh.options;
      entry.chart.update("none");
      const legend = legendOf(entry.model);
      entry.legend.replaceWith(legend);
      entry.legend = legend;
    }
    nameSwitch();
  }

  // Of a chart on A4 or letter paper, in CSS pixels; drawn for another width its letters would be
  // stretched.
  const paperWidth = 680;

  function start() {
    Chart.defaults.font.family = "system-ui, sans-serif";
    Chart.defaults.font.size = 12;
    for (const model of data.charts) draw(model);
    document.querySelector(".tools").hidden = false;
    document.getElementById("theme").addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      recolour();
    });
    document.getElementById("print").addEventListener("click", () => window.print());
    charts.systemDark.addEventListener("change", recolour);
    // Paper is white.
    let before;
    window.addEventListener("beforeprint", () => {
      before = root.dataset.theme;
      root.dataset.theme = "light";
      charts.setPrinting(true);
      recolour();
      for (const entry of drawn) {
        entry.clear();
        entry.chart.resize(paperWidth, entry.place.clientHeight);
      }
    });
    window.addEventListener("afterprint", () => {
      charts.setPrinting(false);
      if (before === undefined) delete root.dataset.theme;
      else root.dataset.theme = before;
      recolour();
      for (const entry of drawn) entry.chart.resize();
    });
    nameSwitch();
    root.dataset.drawn = String(drawn.length);
  }

  start();
})();
