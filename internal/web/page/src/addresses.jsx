// SPDX-License-Identifier: Apache-2.0

import { useState } from "preact/hooks";
import { useView } from "./server.js";
import { Empty, Findings, Head, Lines, Search, Table } from "./parts.jsx";

function Share({ row, known }) {
  if (!known) return <span class="quiet">not known</span>;
  return (
    <div class="share">
      <meter min="0" max="100" high="80" value={row.percent} aria-label={row.name + " in use"} />
      <span>{row.used} of {row.total}</span>
    </div>
  );
}

export function Addresses() {
  const [find, setFind] = useState("");
  const of = useView("addresses", { find });
  const d = of.data;
  const has = (b) => [b.name, b.node, b.pool].some((s) => s && s.toLowerCase().includes(find.trim().toLowerCase()));
  return (
    <>
      <Head title="Addresses" of={of} />
      {d && (
        <>
          <section>
            <h2>Findings</h2>
            {d.findings.length === 0 ? <Empty>No leaked or conflicting addresses in the datastore.</Empty> : <Findings of={d.findings} more={d.moreFindings} />}
          </section>
          <section>
            <h2>Pools</h2>
            {d.pools.length === 0 ? <Empty>There are no pools: each node allocates from its own range.</Empty> : (
              <Table label="Pools" id={(p) => p.name} rows={d.pools} columns={[
                ["Pool", (p) => p.name], ["In use", (p) => <Share row={p} known={d.known} />], ["Free", (p) => d.known ? p.free : "–", "num"], ["Notes", (p) => <Lines of={p.notes} />, "mono"],
              ]} />
            )}
          </section>
          <div class="bar"><Search label="Find an address, a pod or a node" value={find} onInput={setFind} /></div>
          <section>
            <h2>Blocks of nodes</h2>
            {d.blocks.length === 0 ? <Empty>No node has a block yet: it claims one with its first pod.</Empty> : (
              <Table label="Blocks of nodes" id={(b) => b.name} rows={d.blocks.filter(has)} columns={[
                ["Block", (b) => b.name, "mono"], ["Node", (b) => b.node], ["Pool", (b) => b.pool || "–"], ["In use", (b) => <Share row={b} known={d.known} />],
                ["Free", (b) => d.known ? b.free : "–", "num"], ["Notes", (b) => <Lines of={b.notes} />],
              ]} />
            )}
          </section>
          <section>
            <h2>Addresses in use</h2>
            {d.users.length === 0 ? <Empty>{find ? "Nothing has that." : "No pod reports an address."}</Empty> : (
              <Table label="Addresses in use" id={(u) => u.addr + u.user} rows={d.users} columns={[
                ["Address", (u) => u.addr, "mono"], ["Used by", (u) => u.user || "–"], ["Kind", (u) => u.kind], ["Node", (u) => u.node || "–"], ["Block", (u) => u.block || "–", "mono"],
              ]} />
            )}
            {d.moreUsers ? <p class="note">{d.moreUsers} more: find them by a part of the address, the name or the node.</p> : null}
          </section>
        </>
      )}
    </>
  );
}
