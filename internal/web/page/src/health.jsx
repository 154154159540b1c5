// SPDX-License-Identifier: Apache-2.0

import { useState } from "preact/hooks";
import { useView } from "./server.js";
import { href } from "./route.js";
import { DeniedRates } from "./chart.jsx";
import { Badge, Empty, Findings, Head, Search, Table } from "./parts.jsx";

export function Health() {
  const of = useView("health");
  const [find, setFind] = useState("");
  const d = of.data;
  const bad = d ? d.bad : 0, warn = d ? d.warnings : 0;
  return (
    <>
      <Head title="Health" of={of} />
      {d && (
        <>
          <p class={"verdict " + (bad ? "bad" : d.good ? (warn ? "warn" : "ok") : "bad")}>
            <Badge state={bad || !d.good ? "bad" : warn ? "warn" : "ok"}
              text={bad ? bad + (bad === 1 ? " finding is bad" : " findings are bad") : !d.good ? "no agent answers" : warn ? warn + (warn === 1 ? " warning" : " warnings") : "Everything checked is good"} />
            <span>{d.answered} of {d.nodes} agents answer</span>
          </p>
          <section>
            <h2>Findings</h2>
            {d.findings.length === 0 && <Empty>No findings. Agents compare their attachments, routes, rules and addresses with the kernel each time.</Empty>}
            <Findings of={d.findings} more={d.moreFindings} />
          </section>
          <section>
            <h2 id="denied">Denied packets per second, last {d.deniedRates.span / 60} minutes</h2>
            <DeniedRates of={d.deniedRates} />
          </section>
          <section>
            <h2>Sums</h2>
            <dl class="sums">{d.rows.map((r) => <div key={r.name}><dt>{r.name}</dt><dd>{r.text}</dd></div>)}</dl>
          </section>
          <section>
            <h2>Nodes</h2>
            {d.byNode.length > 15 && <div class="bar"><Search label="Find a node" value={find} onInput={setFind} /></div>}
            <Table label="Nodes" id={(n) => n.node} rows={d.byNode.filter((n) => n.node.toLowerCase().includes(find.trim().toLowerCase()))} columns={[
              ["Node", (n) => <a href={href("map", { focus: "node:" + n.node })}>{n.node}</a>],
              ["State", (n) => <Badge state={n.state} text={n.state === "silent" ? "no answer" : n.state} />],
              ...[
                ["Pods with network", (n) => n.attachments, "num"],
                ["VMs", (n) => n.vms, "num"],
                ["Mesh paths", (n) => n.mesh, "num"],
                ["MTU", (n) => n.mtu || "none", "num"],
                ["Denied packets", (n) => n.denied, "num"],
                ["Connections", (n) => n.connections, "num"],
                ["Repairs", (n) => n.repairs, "num"],
                ["Version", (n) => n.version],
              ].map(([title, show, c]) => [title, (n) => n.state === "silent" ? <span class="quiet">not known</span> : show(n), c]),
            ]} />
          </section>
        </>
      )}
    </>
  );
}
