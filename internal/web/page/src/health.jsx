// SPDX-License-Identifier: Apache-2.0

import { useView } from "./server.js";
import { href } from "./route.js";
import { Badge, Empty, Head, Table } from "./parts.jsx";

export function Health() {
  const of = useView("health");
  const d = of.data;
  const bad = d ? d.findings.filter((f) => f.level === "bad").length : 0;
  const warn = d ? d.findings.filter((f) => f.level === "warn").length : 0;
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
            <ul class="findings">
              {d.findings.map((f) => (
                <li key={f.where + f.what} class={f.level}>
                  <Badge state={f.level} text={f.level === "skip" ? "not checked" : f.level} />
                  <div><p><b>{f.where}</b> {f.what}</p>{f.hint && <p class="hint">{f.hint}</p>}</div>
                </li>
              ))}
            </ul>
          </section>
          <section>
            <h2>Sums</h2>
            <dl class="sums">{d.rows.map((r) => <div key={r.name}><dt>{r.name}</dt><dd>{r.text}</dd></div>)}</dl>
          </section>
          <section>
            <h2>Nodes</h2>
            <Table label="Nodes" id={(n) => n.node} rows={d.byNode.slice(0, 400)} columns={[
              ["Node", (n) => <a href={href("map", { focus: "node:" + n.node })}>{n.node}</a>],
              ["State", (n) => <Badge state={n.state} />],
              ["Pods with network", (n) => n.attachments, "num"],
              ["VMs", (n) => n.vms, "num"],
              ["Mesh paths", (n) => n.mesh, "num"],
              ["MTU", (n) => n.mtu || "none", "num"],
              ["Denied packets", (n) => n.denied, "num"],
              ["Connections", (n) => n.connections, "num"],
              ["Repairs", (n) => n.repairs, "num"],
              ["Version", (n) => n.version],
            ]} />
          </section>
        </>
      )}
    </>
  );
}
