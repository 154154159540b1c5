// SPDX-License-Identifier: Apache-2.0

import { useView } from "./server.js";
import { href } from "./route.js";
import { Badge, Empty, Head, Lines, Table } from "./parts.jsx";

const states = { here: "runs here", awaited: "awaited: it migrates to this node", left: "left: it has migrated from this node" };

export function VMs() {
  const of = useView("vms");
  const d = of.data;
  return (
    <>
      <Head title="VMs" of={of} />
      {d && (
        <>
          {d.unknown.map((n) => <p class="note" key={n.name}><Badge state="silent" text="no answer" /> <b>{n.name}</b> {n.text}: its VMs are missing here.</p>)}
          <section>
            <h2>Running</h2>
            {d.vms.length === 0 ? <Empty>No pod has a VM: none of the interfaces on the nodes that answered has a tap.</Empty> : (
              <Table label="VMs" id={(v) => v.node + v.pod} rows={d.vms} columns={[
                ["VM", (v) => v.vm || v.pod],
                ["State", (v) => v.state ? <Badge state={v.state} text={states[v.state]} /> : <span class="quiet">its addresses end with the pod</span>],
                ["Node", (v) => <a href={href("map", { focus: "node:" + v.node })}>{v.node}</a>],
                ["Pod", (v) => v.pod],
                ["Interfaces", (v) => <Lines of={v.interfaces.map((i) => `${i.name}, ${i.network}: ${i.binding}`)} />],
                ["Addresses", (v) => <Lines of={v.interfaces.flatMap((i) => i.addrs)} />, "mono"],
                ["Connections", (v) => <a href={href("why", { to: v.pod })} aria-label={"Why, to " + v.pod}>Why</a>],
              ]} />
            )}
          </section>
          <section>
            <h2>Migrations</h2>
            {d.migrations.length === 0 ? <Empty>No VM migrates now.</Empty> : (
              <Table label="Migrations" id={(m) => m.vm + m.target} rows={d.migrations} columns={[
                ["VM", (m) => m.vm], ["From", (m) => m.source || "not known yet"], ["To", (m) => m.target],
                ["State", (m) => <Badge state={m.departed ? "left" : "awaited"} text={m.departed ? "it has left its source" : "it runs on its source"} />],
              ]} />
            )}
          </section>
        </>
      )}
    </>
  );
}
