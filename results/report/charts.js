// What each chart of a report is to Chart.js: colours, scales, data sets, the marks on top, and the
// words for one of its values. Knows nothing of the page around it.
const charts = (() => {
  "use strict";

  const root = document.documentElement;

  // ------------------------------------------------------------ colours

  // Okabe and Ito's colours, told apart by colour-blind readers; lighter ones on dark ground.
  const palettes = {
    light: ["#0072b2", "#d55e00", "#009e73", "#a3508f", "#8a6d00", "#4c5b6b", "#3f9fd8", "#8c2d04",
            "#5b3fd0", "#8a949e", "#c2417a"],
    dark: ["#56b4e9", "#f0894a", "#35c79a", "#d991c2", "#e0c040", "#aab6c2", "#9ad3f5", "#ffb38a",
           "#a796ff", "#7d8893", "#ff9cc8"],
  };
  // What a colour means stays the same from chart to chart, and no other thing has it.
  const fixedColours = {
    compute: 0, forward: 0, backward: 2, "input gradient": 2, "weight gradient": 4,
    recomputation: 3, "exposed communication": 1, message: 1, "gradient sum": 7, bubble: 5,
    waiting: 5, optimizer: 6, data: 8, other: 9, evaluation: 10,
  };

  const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  const isDark = () =>
    !printing && (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);
  const palette = () => palettes[isDark() ? "dark" : "light"];
  const ink = () => (isDark() ? "#e8eaed" : "#1c2024");
  const grid = () => (isDark() ? "#39424a" : "#dfe3e6");
  const ground = () => (isDark() ? "#1c2125" : "#ffffff");

  function colourOf(model, index) {
    const fixed = fixedColours[model.series[index].name];
    return palette()[(fixed === undefined ? index : fixed) % palette().length];
  }

  // 0 is pale and 1 deep, on either ground: towards red what is bad, towards green what is good.
  const deep = { bad: { light: [158, 42, 43], dark: [255, 176, 92] },
                 good: { light: [0, 104, 84], dark: [90, 214, 180] } };

  function rampColour(share, tone) {
    const ends = isDark() ? [[34, 44, 54], deep[tone].dark] : [[238, 243, 248], deep[tone].light];
    const part = Math.max(0, Math.min(1, share));
    const mix = ends[0].map((from, i) => Math.round(from + (ends[1][i] - from) * part));
    return `rgb(${mix.join(",")})`;
  }

  // ------------------------------------------------------------ numbers

  const prefixes = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

  function short(value) {
    if (value === null || value === undefined || !isFinite(value)) return "–";
    const size = Math.abs(value);
    for (const [factor, letter] of prefixes) {
      if (size >= factor) return `${+(value / factor).toPrecision(4)} ${letter}`;
    }
    return String(+value.toPrecision(4));
  }

  // The name of a place on an axis of places; undefined between them.
  const placeName = (description, value) => (description.places || [])[value - 1];

  // ------------------------------------------------------------ Chart.js settings

  const narrow = 480;  // pixels

  function axis(description, extra = {}) {
    const settings = {
      type: description.log ? "logarithmic" : "linear",
      title: { display: description.title !== "", text: description.title, color: ink() },
      ticks: { color: ink(), callback: (value) => short(value), maxRotation: 0, autoSkip: true },
      grid: { color: grid() },
    };
    if (description.log) settings.ticks.maxTicksLimit = 8;
    if (description.least) [settings.suggestedMin, settings.suggestedMax] = description.least;
    if (description.places) settings.ticks.callback = (value) => placeName(description, value) || "";
    if (description.zero) settings.beginAtZero = true;
    const { ticks, ...rest } = extra;
    return { ...settings, ...rest, ticks: { ...settings.ticks, ...ticks } };
  }

  // Of a long name in a narrow chart the first part and the last.
  function fittingLabel(value) {
    const name = this.getLabelForValue(value);
    const parts = name.split(", ");
    return this.chart.width < narrow && parts.length > 2
      ? `${parts[0]}, ${parts[parts.length - 1]}` : name;
  }

  function categoryAxis(description, labels, extra = {}) {
    const { ticks, ...rest } = extra;
    return {
      type: "category", labels,
      title: { display: description.title !== "", text: description.title, color: ink() },
      ticks: { color: ink(), autoSkip: true, callback: fittingLabel, ...ticks },
      grid: { color: grid(), display: false },
      ...rest,
    };
  }

  const points = (series) => series.x.map((x, i) => ({ x, y: series.y[i] }));

  function lineSets(model) {
    return model.series.map((series, index) => {
      const colour = colourOf(model, index);
      const dots = series.mark === "points";
      return {
        type: dots ? "scatter" : "line",
        label: series.name, data: points(series), showLine: !dots, order: dots ? 0 : 1,
        yAxisID: series.right ? "right" : "y",
        borderColor: colour, backgroundColor: colour, borderWidth: 1.75,
        borderDash: series.mark === "dashed" ? [6, 4] : [],
        stepped: series.mark === "steps" ? "middle" : false,
        pointRadius: dots ? 4.5 : series.x.length <= 40 ? 2.5 : 0,
        pointStyle: ["circle", "rectRot", "triangle", "rect"][index % 4],
        pointHitRadius: 8, clip: 8, tension: 0, spanGaps: false, low: series.low, high: series.high,
        notes: series.labels,
      };
    });
  }

  function barSets(model) {
    return model.series.map((series, index) => ({
      label: series.name, data: series.y, backgroundColor: colourOf(model, index),
      borderColor: ground(), borderWidth: model.kind === "stacked_bars" ? 0.5 : 0,
      low: series.low, high: series.high, maxBarThickness: 48,
    }));
  }

  function spanSets(model) {
    const sets = model.series.map((series, index) => ({
      label: series.name, data: [], notes: [], grouped: false, barPercentage: 0.86,
      categoryPercentage: 1, backgroundColor: colourOf(model, index), borderColor: ground(),
      borderWidth: 0.5, borderSkipped: false, minBarLength: 1,
    }));
    for (const [lane, series, [from, to], label] of model.spans) {
      sets[series].data.push({ x: [from, to], y: model.categories[lane] });
      sets[series].notes.push(label);
    }
    return sets;
  }

  // Colours run from the chart's own lowest value to the largest there is, and to the chart's own
  // highest at least, so that noise stays pale; without these, over the values.
  function gridRange(model) {
    const own = model.colours.length > 0;
    let [low, high] = own ? model.colours : [Infinity, -Infinity];
    for (const series of model.series) {
      for (const value of series.y) {
        if (value === null) continue;
        if (!own) low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    if (!(high > low)) return { low: low - 0.5, high: low + 0.5 };
    return { low, high };
  }

  function gridSets(model) {
    const { low, high } = gridRange(model);
    const set = {
      label: model.y.title, data: [], notes: [], values: [], grouped: false, barPercentage: 1,
      categoryPercentage: 1, borderWidth: 0, borderSkipped: false, minBarLength: 1,
      backgroundColor: [], inflateAmount: 0.4,
    };
    for (const series of model.series) {
      series.y.forEach((value, i) => {
        if (value === null) return;
        set.data.push({ x: [model.edges[i], model.edges[i + 1]], y: series.name });
        set.backgroundColor.push(rampColour((value - low) / (high - low), model.tone));
        set.values.push(value);
        set.notes.push(short(value));
      });
    }
    return [set];
  }

  // Bands, rules and intervals lie on the library's own scales.
  const marks = {
    id: "marks",
    beforeDatasetsDraw(chart) {
      const { ctx, chartArea: area, scales } = chart;
      for (const [[from, to]] of chart.options.model.bands) {
        const left = Math.max(area.left, scales.x.getPixelForValue(from));
        const right = Math.min(area.right, scales.x.getPixelForValue(to));
        if (!(right > left)) continue;
        ctx.fillStyle = isDark() ? "rgba(170,182,194,.2)" : "rgba(90,100,110,.14)";
        ctx.fillRect(left, area.top, right - left, area.bottom - area.top);
      }
    },
    afterDatasetsDraw(chart) {
      const { ctx, chartArea: area, scales } = chart;
      const model = chart.options.model;
      const upright = model.sideways;
      ctx.save();
      ctx.strokeStyle = ink();
      ctx.lineWidth = 1.25;
      ctx.setLineDash([5, 4]);
      for (const [[at], , vertical] of model.rules) {
        const acrossX = vertical || upright;
        const place = acrossX ? scales.x.getPixelForValue(at) : scales.y.getPixelForValue(at);
        ctx.beginPath();
        ctx.moveTo(acrossX ? place : area.left, acrossX ? area.top : place);
        ctx.lineTo(acrossX ? place : area.right, acrossX ? area.bottom : place);
        ctx.stroke();
      }
      ctx.setLineDash([]);
      chart.data.datasets.forEach((set, index) => {
        if (!set.low || !chart.isDatasetVisible(index)) return;
        ctx.strokeStyle = set.borderColor;
        chart.getDatasetMeta(index).data.forEach((element, i) => {
          if (set.low[i] === null || set.high[i] === null) return;
          const top = scales.y.getPixelForValue(set.high[i]);
          const bottom = scales.y.getPixelForValue(set.low[i]);
          ctx.beginPath();
          for (const y of [top, bottom]) {
            ctx.moveTo(element.x - 5, y);
            ctx.lineTo(element.x + 5, y);
          }
          ctx.moveTo(element.x, top);
          ctx.lineTo(element.x, bottom);
          ctx.stroke();
        });
      });
      ctx.restore();
    },
  };

  function extent(model) {
    let low = Infinity, high = -Infinity;
    for (const series of model.series) {
      for (const x of series.x || []) {
        low = Math.min(low, x);
        high = Math.max(high, x);
      }
    }
    for (const [[from, to]] of model.bands) {
      low = Math.min(low, from);
      high = Math.max(high, to);
    }
    if (!(high > low)) return {};
    // The start of a run is zero; a little before it says nothing.
    if (!model.x.log && !model.x.places && low > 0 && low < 0.2 * high) low = 0;
    return { min: low, max: high };
  }

  // A rule across the chart must be inside of it.
  function ruleRoom(model) {
    const levels = model.rules.filter(([, , vertical]) => !vertical).map(([[at]]) => at);
    if (levels.length === 0) return {};
    return { suggestedMin: Math.min(...levels), suggestedMax: Math.max(...levels) * 1.05 };
  }

  function scalesOf(model) {
    switch (model.kind) {
      case "lines": {
        const scales = { x: axis(model.x, extent(model)), y: axis(model.y, ruleRoom(model)) };
        const all = [...new Set(model.series.flatMap((series) => series.x))];
        if (all.every((x) => Number.isInteger(x))) {
          scales.x.ticks.precision = 0;
          if (model.x.log && all.length <= 12) {
            scales.x.afterBuildTicks = (scale) => { scale.ticks = all.map((value) => ({ value })); };
          }
        }
        if (model.right) {
          scales.right = axis(model.right, { position: "right", grid: { drawOnChartArea: false },
                                             min: 0, max: 1 });
        }
        return scales;
      }
      case "bars": {
        const counts = model.series.every((series) => series.y.every((y) => Number.isInteger(y)));
        return { x: categoryAxis(model.x, model.categories, { ticks: { maxTicksLimit: 12 } }),
                 y: axis(model.y, { beginAtZero: true, ...ruleRoom(model),
                                    ticks: counts ? { precision: 0 } : {} }) };
      }
      case "stacked_bars":
        return { y: categoryAxis(model.x, model.categories, { stacked: true,
                                                              ticks: { autoSkip: false } }),
                 x: axis(model.y, { stacked: true, beginAtZero: true, ...ruleRoom(model) }) };
      case "spans":
        return { x: axis(model.x, { min: 0 }),
                 y: categoryAxis(model.y, model.categories, { ticks: { autoSkip: false } }) };
      default: {
        const edges = model.edges;
        return { x: axis(model.x, { min: edges[0], max: edges[edges.length - 1] }),
                 y: categoryAxis({ title: "" }, model.series.map((series) => series.name)) };
      }
    }
  }

  const setsOf = { lines: lineSets, bars: barSets, stacked_bars: barSets, spans: spanSets,
                   grid: gridSets };

  function pointText(model, chart, set, index) {
    const own = chart.data.datasets[set];
    const value = own.data[index];
    const note = own.notes && own.notes[index] ? ` (${own.notes[index]})` : "";
    switch (model.kind) {
      case "lines": {
        const interval = own.low && own.low[index] !== null
          ? `, ${short(own.low[index])} to ${short(own.high[index])}` : "";
        const place = placeName(model.x, value.x) || short(value.x);
        return `${own.label}: ${short(value.y)} at ${place}${interval}${note}`;
      }
      case "spans":
        return `${value.y}: ${own.label}${note}, ${short(value.x[0])} to ${short(value.x[1])}`;
      case "grid":
        return `${value.y}, ${short(value.x[0])} to ${short(value.x[1])}: ` +
               `${short(own.values[index])}`;
      default:
        return `${model.categories[index]}, ${own.label}: ${short(value)}`;
    }
  }

  function heightOf(model, width) {
    const lanes = model.kind === "grid" ? model.series.length : model.categories.length;
    const each = model.kind === "grid" ? 18 : 24;
    if (["spans", "grid", "stacked_bars"].includes(model.kind)) {
      return Math.max(130, Math.min(2400, 76 + lanes * (lanes > 40 ? each * 0.7 : each)));
    }
    return width < narrow ? 250 : 320;
  }

  function settingsOf(model) {
    model.sideways = ["stacked_bars", "spans", "grid"].includes(model.kind);
    return {
      type: model.kind === "lines" ? "line" : "bar",
      data: { datasets: setsOf[model.kind](model),
              labels: model.kind === "bars" ? model.categories : undefined },
      options: {
        model, responsive: true, maintainAspectRatio: false, animation: false, normalized: true,
        devicePixelRatio: Math.max(2, window.devicePixelRatio || 1),
        indexAxis: model.sideways ? "y" : "x", parsing: !model.sideways || model.kind === "stacked_bars"
          ? undefined : { xAxisKey: "x", yAxisKey: "y" },
        interaction: { mode: "nearest", intersect: model.kind !== "lines", axis: "xy" },
        scales: scalesOf(model),
        plugins: {
          legend: { display: false },
          tooltip: { callbacks: {
            title: () => "",
            label: (item) => pointText(model, item.chart, item.datasetIndex, item.dataIndex),
          } },
        },
      },
      plugins: [marks],
    };
  }

  return { colourOf, ground, gridRange, heightOf, ink, isDark, pointText, rampColour, settingsOf,
           short, systemDark, setPrinting: (on) => { printing = on; } };
})();
