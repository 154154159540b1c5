// SPDX-License-Identifier: Apache-2.0

import { useState } from "preact/hooks";
import { useView } from "./server.js";
import { Badge, Empty, Head, Lines, Search, Table } from "./parts.jsx";

function Rules({ of }) {
  if (of == null) return <span class="quiet">not affected</span>;
  if (of.length === 0) return "denies everything";
  return <Lines of={of} />;
}

export function Policies() {
  const of = useView("policies");
  const [find, setFind] = useState("");
  const d = of.data;
  const has = (p) => [p.name, p.kind, p.selector, ...p.selects].some((s) => s.toLowerCase().includes(find.toLowerCase()));
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
          <div class="bar"><Search label="Find a policy or a pod" value={find} onInput={setFind} /></div>
          {d.policies.length === 0 ? <Empty>There are no policies: every pod can connect to every other. They appear here as soon as they are applied.</Empty> : (
            <Table label="Policies" id={(p) => p.kind + p.name} rows={d.policies.filter(has)} columns={[
              ["Policy", (p) => <>{p.name}<div class="quiet">{p.kind}{p.tier && ", " + p.tier}</div></>],
              ["State", (p) => p.faults.length === 0 ? <Badge state="ok" text="in force" /> : <><Badge state="warn" text="fault" /><Lines of={p.faults} /></>],
              ["Selects", (p) => <>{p.pods} of {d.pods} pods<div class="quiet">{p.selector}</div>{p.selects.length > 0 && <details><summary>Names<span class="hidden"> of the pods of {p.name}</span></summary><Lines of={p.selects} />{p.pods > p.selects.length && <div>and {p.pods - p.selects.length} more</div>}</details>}</>],
              ["Ingress", (p) => <Rules of={p.ingress} />],
              ["Egress", (p) => <Rules of={p.egress} />],
              ["Denied packets", (p) => p.denied, "num"],
            ]} />
          )}
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
