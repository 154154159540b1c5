// SPDX-License-Identifier: Apache-2.0

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { href } from "./route.js";
import { Badge, Empty } from "./parts.jsx";

// looks are the color and the dashes of each line: no meaning is in the color alone.
const looks = { allowed: ["--ok-line", []], denied: ["--bad-line", [8, 5]], dropped: ["--warn-line", [2, 4]] };
const height = 190;

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
const number = (n) => n.toLocaleString(undefined, { maximumFractionDigits: 1 });
const clock = (seconds) => new Date(1000 * seconds).toLocaleTimeString(undefined, { hour12: false });

function Key({ verdict }) {
  return <svg class={"key " + verdict} viewBox="0 0 40 10" aria-hidden="true"><line x1="0" y1="5" x2="40" y2="5" /></svg>;
}

// points returns what uPlot draws: the times in seconds, then the values of each line.
function points(of) {
  const times = of.times ? of.times.map((t) => t / 1000) : of.lines[0].rates.map((_, i) => of.since / 1000 + (i + 1) * of.step);
  return [times, ...of.lines.map((l) => l.rates)];
}

function options(of, width, span) {
  const axis = {
    stroke: () => color("--quiet"), grid: { stroke: () => color("--line"), width: 1 }, ticks: { stroke: () => color("--line"), width: 1 },
    font: "12px system-ui, sans-serif",
  };
  return {
    width, height, cursor: { show: false }, legend: { show: false }, select: { show: false },
    scales: { x: { time: true, range: span }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 56, values: (_, ticks) => ticks.map(number) }],
    series: [{}, ...of.lines.map((l) => ({
      label: l.verdict, stroke: () => color(looks[l.verdict][0]), dash: looks[l.verdict][1], width: 2, points: { show: false },
    }))],
  };
}

// Plot draws lines over the last span seconds. It has no controls: the table next to it says the same.
function Plot({ of }) {
  const at = useRef(null), plot = useRef(null), last = useRef(of);
  last.current = of;
  const span = () => {
    const times = points(last.current)[0], end = times.length ? times[times.length - 1] : last.current.since / 1000;
    return [end - last.current.span, end];
  };
  useEffect(() => {
    const u = plot.current = new uPlot(options(last.current, at.current.clientWidth, span), points(last.current), at.current);
    const size = new ResizeObserver(() => at.current && u.setSize({ width: at.current.clientWidth, height }));
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => u.redraw(false, true);
    size.observe(at.current);
    scheme.addEventListener("change", redraw);
    return () => { size.disconnect(); scheme.removeEventListener("change", redraw); u.destroy(); };
  }, []);
  useEffect(() => { plot.current.setData(points(of)); }, [of.since, of.lines[0].rates.length, of.times && of.times[of.times.length - 1], of.flows]);
  return <div ref={at} />;
}

// Chart shows lines, and the same as a table. Its title is elsewhere.
function Chart({ of, what, count, titledBy }) {
  const said = of.lines.map((l) => `${l.verdict} ${number(l.now)}, at most ${number(l.peak)}`).join("; ");
  return (
    <div class="chart" role="group" aria-labelledby={titledBy}>
      <div class="plot" role="img" aria-label={what + ". " + said}><Plot of={of} /></div>
      <div class="scroll" tabIndex={0} role="region" aria-label={what + ", as a table"}>
        <table>
          <thead><tr><th scope="col">Verdict</th><th scope="col" class="num">Now</th><th scope="col" class="num">Highest</th><th scope="col" class="num">{count}</th></tr></thead>
          <tbody>
            {of.lines.map((l) => (
              <tr key={l.verdict}>
                <th scope="row"><Key verdict={l.verdict} /><Badge state={l.verdict} /></th>
                <td class="num">{number(l.now)}</td><td class="num">{number(l.peak)}</td><td class="num">{l.flows}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}

// Rates shows the flows per second by verdict, as lines and as a table.
export function Rates({ of, began, filtered }) {
  if (of.flows === 0) {
    return (
      <Empty>
        Nothing to draw: since {new Date(Math.max(began, of.since)).toLocaleTimeString()} no connection began{filtered && " that the filter selects"}, and no packet was denied or dropped.
        {" "}Agents observe since {new Date(began).toLocaleTimeString()}, while this view is open.
      </Empty>
    );
  }
  return <Chart of={of} what="Flows per second" count="Flows" titledBy="rates" />;
}

// DeniedRates shows the packets per second that policies denied.
export function DeniedRates({ of }) {
  const since = new Date(of.since).toLocaleTimeString();
  if (of.flows === 0) return <Empty>Nothing to draw: no policy has denied a packet since {since}, while this page was open.</Empty>;
  return (
    <>
      <Chart of={of} what="Denied packets per second" count="Packets" titledBy="denied" />
      <p class="note">Counted since {since}, while this page was open. <a href={href("flows", { verdict: "denied,dropped" })}>See which</a></p>
    </>
  );
}
