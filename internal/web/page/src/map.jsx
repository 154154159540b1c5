// SPDX-License-Identifier: Apache-2.0

import { useEffect, useState } from "preact/hooks";
import { useView } from "./server.js";
import { go, href } from "./route.js";
import { Badge, Empty, Head, Lines, Search, Table, tone } from "./parts.jsx";

const cardRoom = 316; // a node's width and the gap, as the layout has them

function useColumns() {
  const count = () => Math.max(1, Math.floor((innerWidth - (innerWidth > 820 ? 290 : 60)) / cardRoom));
  const [n, set] = useState(count());
  useEffect(() => {
    const f = () => set(count());
    addEventListener("resize", f);
    return () => removeEventListener("resize", f);
  }, []);
  return n;
}

const signs = { ok: "✓", warn: "!", bad: "✕", unknown: "?", wait: "…", skip: "–" };

function Chip({ c, query }) {
  const chosen = c.name === query.from || c.name === query.to;
  const to = query.from && query.from !== c.name && !query.to
    ? href("why", { from: query.from, to: c.name })
    : href("map", { ...query, from: c.name, to: "", state: "", there: "", back: "" });
  const dim = query.network && !(c.networks || ["cluster network"]).concat("cluster network").includes(query.network);
  const word = (c.kind === "vm" ? "VM " : "pod ") + c.name + (c.state === "ok" ? "" : ", " + c.state);
  return (
    <a href={to} class={"chip " + c.kind + " " + c.state + (chosen ? " chosen" : "") + (dim ? " dim" : "")}>
      <title>{word + (c.networks ? ", networks " + c.networks.join(", ") : "")}</title>
      <rect x={c.x} y={c.y} width={c.w} height={c.h} rx={c.kind === "vm" ? 3 : 14} />
      <text x={c.x + 12} y={c.y + 19}>{c.kind === "vm" ? "▣ " : ""}{c.label}{c.networks ? " +" + c.networks.length : ""}</text>
    </a>
  );
}

function NodeBox({ b, query, focused }) {
  const t = tone(b.state);
  const head = (
    <>
      <rect class={"card " + t} x={b.x} y={b.y} width={b.w} height={b.h} rx="8" />
      <text class="name" x={b.x + 12} y={b.y + 22}>{b.name.length > 26 ? b.name.slice(0, 25) + "…" : b.name}</text>
      <text class="text" x={b.x + 12} y={b.y + 40}>{b.text}</text>
      {b.w > 200 && <text class={"sign " + t} x={b.x + b.w - 12} y={b.y + 22} text-anchor="end">{signs[t] + " " + (b.state === "silent" ? "no answer" : b.state)}</text>}
      {b.w <= 200 && t !== "ok" && <text class={"sign " + t} x={b.x + b.w - 8} y={b.y + 22} text-anchor="end">{signs[t]}</text>}
    </>
  );
  return (
    <g>
      {focused ? head : <a href={href("map", { focus: b.focus })}>{head}</a>}
      {(b.chips || []).map((c) => <Chip key={c.name} c={c} query={query} />)}
      {b.more ? <a href={href("map", { focus: b.focus })}><text class="more" x={b.x + 12} y={b.moreY}>{b.more} more</text></a> : null}
    </g>
  );
}

// center returns where a pod is drawn, or its node.
function center(d, name) {
  for (const b of d.boxes) {
    const c = (b.chips || []).find((c) => c.name === name);
    if (c) return [c.x + c.w / 2, c.y + c.h / 2];
    if (b.name === name) return [b.x + b.w / 2, b.y + 26];
  }
  const row = d.pods.find((p) => p.name === name);
  const b = row && d.boxes.find((b) => b.name === row.node);
  return b ? [b.x + b.w / 2, b.y + b.h - 10] : null;
}

function Connection({ d, query }) {
  const a = center(d, query.from), b = center(d, query.to);
  if (!a || !b) return null;
  const t = tone(query.state), path = bow(...a, ...b);
  return (
    <g class={"way " + t} aria-hidden="true">
      <path d={path} />
      <circle cx={a[0]} cy={a[1]} r="4" />
      <circle class="end" cx={b[0]} cy={b[1]} r="10" /><text x={b[0]} y={b[1] + 5} text-anchor="middle">{signs[t]}</text>
    </g>
  );
}

const split = (text) => (text || "").split(",").filter(Boolean);

// Hops draws where a traced packet was seen, and its answer next to it, with numbers in the order in which they were.
function Hops({ d, query }) {
  const there = split(query.there), back = split(query.back), t = tone(query.state);
  const line = (names, first, dx, last) => {
    const at = names.map((n) => center(d, n)).map((p) => p && [p[0] + dx, p[1] + dx / 3]);
    const drawn = at.filter(Boolean);
    return (
      <g class={dx ? "back" : ""}>
        <polyline points={drawn.map((p) => p.join()).join(" ")} />
        {at.map((p, i) => p && <g key={i}><circle class={last && i === at.length - 1 ? "last" : ""} cx={p[0]} cy={p[1]} r="9" /><text x={p[0]} y={p[1] + 4} text-anchor="middle">{last && i === at.length - 1 && t === "bad" ? "✕" : first + i}</text></g>)}
      </g>
    );
  };
  return <g class={"hops-drawn " + t} aria-hidden="true">{line(back, there.length + 1, 24, true)}{line(there, 1, 0, back.length === 0)}</g>;
}

// HopList says the same as Hops.
function HopList({ query }) {
  const there = split(query.there), back = split(query.back), bad = tone(query.state) === "bad";
  return (
    <ol class="hoplist">
      {[...there.map((n) => [n, "packet"]), ...back.map((n) => [n, "answer"])].map(([n, what], i, all) => (
        <li key={i}>{what} at <b>{n}</b>{bad && i === all.length - 1 && <> <Badge state="bad" text="last seen here" /></>}</li>
      ))}
    </ol>
  );
}

// bow returns a curve between two points: an arc above them, or at their right if one is above the other.
function bow(x1, y1, x2, y2) {
  const top = Math.min(y1, y2) - 46;
  return Math.abs(x1 - x2) < 30
    ? `M${x1} ${y1}C${x1 + 110} ${y1} ${x2 + 110} ${y2} ${x2} ${y2}`
    : `M${x1} ${y1}C${x1} ${top} ${x2} ${top} ${x2} ${y2}`;
}

function Traffic({ w }) {
  const t = tone(w.verdict);
  const word = `${w.from} to ${w.to}: ${w.flows} flows ${w.verdict}`;
  return (
    <a href={href("why", { from: w.from, to: w.to, port: w.port || "", protocol: w.port ? w.protocol : "" })} class={"traffic " + t}>
      <title>{word}</title>
      <path d={bow(w.x1, w.y1, w.x2, w.y2)} stroke-width={w.width} />
      <text x={w.x2} y={w.y2 + 4} text-anchor="middle">{(t === "bad" ? "✕ " : "") + w.flows}</text>
    </a>
  );
}

export function Map({ query }) {
  const columns = useColumns();
  const [find, setFind] = useState("");
  const of = useView("map", { columns, focus: query.focus || "", find, traffic: query.traffic || "" });
  const d = of.data;
  return (
    <>
      <Head title="Map" of={of}>{d && <span class="sub">{d.title}</span>}</Head>
      {d && (
        <>
          <div class="bar">
            {d.up != null && <a class="button" href={href("map", { focus: d.up })}>← {d.up || "all nodes"}</a>}
            <Search label="Find a pod, an address or a network" value={find} onInput={setFind} />
            <label class="search"><span>Network</span>
              <select value={query.network || ""} onChange={(e) => go("map", { ...query, network: e.currentTarget.value })}>
                <option value="">all</option>
                {d.networks.map((n) => <option key={n.name} value={n.name}>{n.name} ({n.pods})</option>)}
              </select>
            </label>
            <label class="check"><input type="checkbox" checked={!!query.traffic} onChange={(e) => go("map", { ...query, traffic: e.currentTarget.checked ? "1" : "" })} />Traffic of the last minute</label>
          </div>
          {query.from && !query.to && (
            <p class="note">From <b>{query.from}</b>: choose the other end, or <a href={href("why", { from: query.from })}>write it</a>. <a href={href("map", { ...query, from: "" })}>Cancel</a></p>
          )}
          {query.from && query.to && (
            <p class="note"><Badge state={query.state || "unknown"} /> {query.from} to {query.to}. <a href={href("why", { from: query.from, to: query.to, port: query.port, protocol: query.protocol })}>Why</a> · <a href={href("map", { focus: query.focus })}>Clear</a></p>
          )}
          {query.there && <HopList query={query} />}
          {d.boxes.length === 0 ? <Empty>No node is called that. <a href={href("map")}>Show all nodes</a></Empty> : (
            <div class="picture" tabIndex={0} role="region" aria-label="Picture of the map">
              <svg class={columns === 1 ? "fit" : ""} width={d.width} height={d.height} viewBox={`0 0 ${d.width} ${d.height}`} role="group" aria-label="Nodes, the links between them, pods and VMs; the tables below say the same">
                {d.buses.map((b) => (
                  <g key={b.name} class={"bus" + (b.tunnel ? " tunnel" : "")}>
                    {b.lines.map((l, i) => <line key={i} {...l} />)}
                    {b.tunnel && b.lines.map((l, i) => <line class="inner" key={i} {...l} />)}
                    <text x={b.labelX} y={b.labelY}>{b.name}</text>
                  </g>
                ))}
                {d.boxes.map((b) => <NodeBox key={b.name} b={b} query={query} focused={d.focus === b.focus} />)}
                {d.gaps.map((g) => <g class="gap" key={g.from + g.to}><line x1={g.x1} y1={g.y1} x2={g.x2} y2={g.y2} /><text x={(g.x1 + g.x2) / 2} y={(g.y1 + g.y2) / 2}>✕ no path</text></g>)}
                {d.ways.map((w) => <Traffic key={[w.from, w.to, w.verdict, w.port].join()} w={w} />)}
                {query.from && query.to && (query.there ? <Hops d={d} query={query} /> : <Connection d={d} query={query} />)}
              </svg>
            </div>
          )}
          <p class="legend">Choose a pod, then another, to see why they can or cannot connect. Round: pods; square with ▣: VMs; +1: a further network; solid line: routes; double line: a tunnel.{query.traffic && " Arcs are connections and denied packets (✕) of the last minute, with their number at the destination: choose one to see why. Agents observe while this is open."}{query.traffic && d.otherFlows ? " " + d.otherFlows + " more have an end that is not drawn, as outside of the cluster." : ""}</p>
          <section>
            <h2>Nodes</h2>
            <Table label="Nodes" id={(n) => n.node} rows={d.nodes} columns={[
              ["Node", (n) => <a href={href("map", { focus: "node:" + n.node })}>{n.node}</a>],
              ["State", (n) => <><Badge state={n.state} text={n.state === "silent" ? "no answer" : n.state} />{n.why && <p class="hint">{n.why}</p>}</>],
              ["Addresses", (n) => <Lines of={n.addrs} />, "mono"],
              ["Pods", (n) => n.state === "silent" ? "not known" : n.pods, "num"],
              ["VMs", (n) => n.state === "silent" ? "not known" : n.vms, "num"],
              ["Paths to other nodes", (n) => n.state === "silent" ? "not known" : n.paths.length ? <Lines of={n.paths} /> : "none"],
            ]} />
          </section>
          {d.moreNodes ? <p class="note">{d.moreNodes} more: they are in the picture, and in <a href={href("health")}>Health</a>.</p> : null}
          <section>
            <h2>Pods and VMs</h2>
            {d.pods.length === 0 ? <Empty>{find ? "Nothing is called that." : "No pod has a network of weft's here."}</Empty> : (
              <Table label="Pods and VMs" id={(p) => p.node + p.name} rows={d.pods} columns={[
                ["Name", (p) => p.name],
                ["Kind", (p) => p.kind === "vm" ? "VM" : "pod"],
                ["State", (p) => <Badge state={p.state} />],
                ["Node", (p) => p.node],
                ["Addresses", (p) => <Lines of={p.addrs} />, "mono"],
                ["Networks", (p) => <Lines of={p.networks} />],
                ["Connections", (p) => <a href={href("why", { from: p.name })} aria-label={"Why, from " + p.name}>Why</a>],
              ]} />
            )}
            {d.morePods ? <p class="note">{d.morePods} more: find them by a part of their name, address or network.</p> : null}
          </section>
        </>
      )}
    </>
  );
}
