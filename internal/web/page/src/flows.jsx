// SPDX-License-Identifier: Apache-2.0

import { useView } from "./server.js";
import { go, href } from "./route.js";
import { Rates } from "./chart.jsx";
import { Badge, Command, Empty, Head, Icon, Lines, Search, Table } from "./parts.jsx";

function why(f) {
  return href("why", { from: f.fromName, to: f.toName, port: f.port || "", protocol: f.port ? f.protocol : "" });
}

export function Flows({ query }) {
  const filter = { pod: query.pod || "", namespace: query.namespace || "", port: query.port || "", verdict: query.verdict || "" };
  const of = useView("flows", filter);
  const d = of.data;
  const set = (name, value) => go("flows", { ...filter, [name]: value });
  const field = (name, label, more = {}) => ( // a part of a name selects nothing: it counts when it is complete
    <Search label={label} value={filter[name]} onInput={(value) => set(name, value)} pause={false} {...more} />
  );
  return (
    <>
      <Head title="Flows" of={of}>{d && <span class="sub">{d.total} seen since {new Date(d.since).toLocaleTimeString()}</span>}</Head>
      <div class="bar filters">
        {field("pod", "Pod", { placeholder: "shop/web*" })}
        {field("namespace", "Namespace", { placeholder: "any" })}
        {field("port", "Port", { placeholder: "any", size: 8 })}
        <label class="search"><span>Verdict</span>
          <select value={filter.verdict} onChange={(e) => set("verdict", e.currentTarget.value)}>
            <option value="">any</option><option value="denied,dropped">denied or dropped</option><option value="denied">denied</option><option value="dropped">dropped</option><option value="allowed">allowed</option>
          </select>
        </label>
      </div>
      {d && (
        <>
          {d.notes.map((n) => <p class="note" key={n.text}><Badge state="warn" text="missing" /> {n.text}{n.count > 1 && " (" + n.count + " times)"}</p>)}
          <section>
            <h2 id="rates">Flows per second, last {d.rates.span / 60} minutes</h2>
            <Rates of={d.rates} began={d.since} filtered={Object.values(filter).some(Boolean)} />
          </section>
          <section>
            <h2>Last {d.seconds} seconds, by ends</h2>
            {d.pairs.length === 0 ? <Empty>No connection began{Object.values(filter).some(Boolean) ? " that the filter selects" : ""}, and no packet was denied.</Empty> : (
              <Table label="Sums by ends" id={(p) => [p.from, p.to, p.port, p.protocol, p.verdict].join()} rows={d.pairs} columns={[
                ["From", (p) => p.from], ["To", (p) => p.to], ["Port", (p) => (p.port ? p.port + "/" : "") + p.protocol],
                ["Verdict", (p) => <Badge state={p.verdict} />], ["Flows", (p) => p.flows, "num"],
                ["Connections", (p) => <a href={why({ ...p, fromName: p.from, toName: p.to })} aria-label={"Why, " + p.from + " to " + p.to}>Why</a>],
              ]} />
            )}
          </section>
          <section>
            <h2>Newest first</h2>
            {d.flows.length === 0 ? <Empty>Agents observe while this view is open. Connections appear here as they begin.</Empty> : (
              <Table label="Flows" rows={d.flows} columns={[
                ["Time", (f) => new Date(f.time).toLocaleTimeString(undefined, { hour12: false, fractionalSecondDigits: 3, hour: "2-digit", minute: "2-digit", second: "2-digit" }), "mono"],
                ["Verdict", (f) => <Badge state={f.verdict} />],
                ["From", (f) => f.from], ["To", (f) => <>{f.to}{f.via && <div class="quiet">via {f.via}</div>}</>],
                ["Protocol", (f) => f.protocol], ["Event", (f) => f.kind],
                ["Decided by", (f) => f.why ? <Lines of={f.why.split("; ")} /> : "–"],
                ["Node", (f) => f.node], ["Connection", (f) => <a href={why(f)} aria-label={"Why, " + f.fromName + " to " + f.toName}>Why</a>],
              ]} />
            )}
            {d.more > 0 && <p class="note">{d.more} older ones are not shown.</p>}
          </section>
          <Command text={d.command} />
        </>
      )}
      {!d && !of.stale && <p class="note"><Icon name="wait" /> The agents begin to observe…</p>}
    </>
  );
}
