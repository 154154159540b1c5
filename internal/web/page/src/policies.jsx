// SPDX-License-Identifier: Apache-2.0

import { useState } from "preact/hooks";
import { useView } from "./server.js";
import { go, href } from "./route.js";
import { Badge, Empty, Head, Lines, Search, Table } from "./parts.jsx";

function Rules({ of }) {
  if (of == null) return <span class="quiet">not affected</span>;
  if (of.length === 0) return "denies everything";
  return <Lines of={of} />;
}

function Cell({ c, query, row, col }) {
  if (!c.verdict) return <td class="cell"><span class="quiet">–</span></td>;
  const link = c.fromPod && c.toPod ? href("why", { from: c.fromPod, to: c.toPod, network: query.network })
    : query.from ? null : href("policies", { from: row.namespace, to: col.namespace, network: query.network });
  const text = c.text || c.verdict;
  return <td class={"cell " + c.verdict}>{link ? <a href={link} aria-label={`${row.name} to ${col.name}: ${text}`}>{text}</a> : <div>{text}</div>}</td>;
}

function Matrix({ query }) {
  const [find, setFind] = useState("");
  const one = query.from && query.to;
  const network = query.network || "";
  const of = useView("matrix", { from: query.from || "", to: query.to || "", find, network });
  const d = of.data;
  return (
    <section>
      <h2>Allowed connections</h2>
      {of.stale && <p class="note"><Badge state="warn" text="not computed" /> {of.stale.error}</p>}
      {d && d.invalid.length > 0 && <div class="note"><Badge state="warn" text="invalid objects" /> Only their valid parts count. <Lines of={d.invalid} /></div>}
      {one
        ? <p class="note">Pods of <b>{query.from}</b> (rows) to pods of <b>{query.to}</b> (columns), by the labels that policies select by. <a href={href("policies", { network })}>All namespaces</a>{query.from !== query.to && <> · <a href={href("policies", { from: query.to, to: query.from, network })}>The other direction</a></>}</p>
        : null}
      <div class="bar filters">
        {!one && <Search label="Find a namespace" value={find} onInput={setFind} />}
        {d && (d.networks.length > 0 || network) && (
          <label class="search"><span>Network</span>
            <select value={network} onChange={(e) => go("policies", { ...query, network: e.currentTarget.value })}>
              <option value="">cluster network</option>
              {d.networks.map((n) => <option key={n.name} value={n.name}>{n.name} ({n.pods})</option>)}
              {network && !d.networks.some((n) => n.name === network) && <option value={network}>{network} (0)</option>}
            </select>
          </label>
        )}
      </div>
      {!d ? <p class="note quiet">The pods are compared…</p> : d.rows.length === 0 || d.cols.length === 0
        ? <Empty>{d.empty ? network ? "No pod has an address on this network." : "No pod has an address yet." : one ? "One of the namespaces has no pod with an address now." : "No namespace with pods is called that."}</Empty>
        : (
          <div class="scroll" tabIndex={0} role="region" aria-label="Matrix of connections that policies allow">
            <table class="matrix">
              <thead><tr><th scope="col">from ↓ to →</th>{d.cols.map((c) => <th scope="col" key={c.name}>{c.name}<div>{c.text}</div></th>)}</tr></thead>
              <tbody>{d.rows.map((r, i) => (
                <tr key={r.name + r.text}><th scope="row">{r.name}<div class="quiet">{r.text}</div></th>
                  {d.cells[i].map((c, j) => <Cell key={j} c={c} query={query} row={r} col={d.cols[j]} />)}</tr>
              ))}</tbody>
            </table>
          </div>
        )}
      {d && (d.moreRows || d.moreCols) ? <p class="note">{Math.max(d.moreRows || 0, d.moreCols || 0)} more are not shown{one ? "." : ": find them by a part of their name."}</p> : null}
      <p class="legend">What policies allow from a row to a column: all; some ports, or some of the pairs of pod groups; or none. Choose a cell for more. Policies of host endpoints are not in it.{network && " On a further network MultiNetworkPolicies that name it apply; outside are addresses that no pod has there."} Whether the network leads there is what Why shows.</p>
    </section>
  );
}

export function Policies({ query }) {
  const of = useView("policies");
  const [find, setFind] = useState("");
  const d = of.data;
  const has = (p) => [p.name, p.kind, p.selector, ...p.selects, ...p.hosts].some((s) => s.toLowerCase().includes(find.toLowerCase()));
  return (
    <>
      <Head title="Policies" of={of} />
      {d && (
        <>
          <dl class="sums">
            <div><dt>Policies</dt><dd>{d.policies.length}, {d.policies.filter((p) => p.faults.length > 0).length} with a fault</dd></div>
            <div><dt>Pods</dt><dd>{d.pods - d.open} of {d.pods} selected by a policy</dd></div>
            <div><dt>Pods without a policy</dt><dd>{d.open}: no policy restricts their traffic</dd></div>
          </dl>
          {d.notEnforced.map((n) => <p class="note" key={n.name}><Badge state="warn" text="not known" /> <b>{n.name}</b> {n.text}</p>)}
          <div class="bar"><Search label="Find a policy, a pod or a host endpoint" value={find} onInput={setFind} /></div>
          {d.policies.length === 0 ? <Empty>There are no policies: every pod can connect to every other. They appear here as soon as they are applied.</Empty> : (
            <Table label="Policies" id={(p) => p.kind + p.name} rows={d.policies.filter(has)} columns={[
              ["Policy", (p) => <>{p.name}<div class="quiet">{p.kind}{p.tier && ", " + p.tier}{p.networks && ", of " + p.networks.join(", ")}</div></>],
              ["State", (p) => p.faults.length === 0 ? <Badge state="ok" text="in force" /> : <><Badge state="warn" text="fault" /><Lines of={p.faults} /></>],
              ["Selects", (p) => <>{p.pods} of {d.pods} pods<div class="quiet">{p.selector}</div>{p.selects.length > 0 && <details><summary>Names<span class="hidden"> of the pods of {p.name}</span></summary><Lines of={p.selects} />{p.pods > p.selects.length && <div>and {p.pods - p.selects.length} more</div>}</details>}{p.hosts.length > 0 && <details><summary>{p.hosts.length} host {p.hosts.length === 1 ? "endpoint" : "endpoints"}<span class="hidden"> of {p.name}</span></summary><Lines of={p.hosts} /></details>}</>],
              ["Ingress", (p) => <Rules of={p.ingress} />],
              ["Egress", (p) => <Rules of={p.egress} />],
              ["Denied packets", (p) => p.denied, "num"],
            ]} />
          )}
          <Matrix query={query} />
          {d.denied.length > 0 && (
            <section>
              <h2>Denied by others</h2>
              <Table label="Denied by others" id={(r) => r.by} rows={d.denied} columns={[["By", (r) => r.by], ["Packets", (r) => r.packets, "num"]]} />
            </section>
          )}
        </>
      )}
    </>
  );
}
