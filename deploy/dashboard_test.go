// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What Grafana's dashboards consist of, as far as weft's has it: version 39 of its schema.
type (
	dashboard struct {
		UID           string      `json:"uid"`
		Title         string      `json:"title"`
		Description   string      `json:"description"`
		Tags          []string    `json:"tags"`
		SchemaVersion int         `json:"schemaVersion"`
		Editable      bool        `json:"editable"`
		Refresh       string      `json:"refresh"`
		Time          timeRange   `json:"time"`
		Templating    templating  `json:"templating"`
		Annotations   annotations `json:"annotations"`
		Panels        []panel     `json:"panels"`
	}
	timeRange struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	annotations struct {
		List []struct{} `json:"list"`
	}
	templating struct {
		List []variable `json:"list"`
	}
	variable struct {
		Name       string      `json:"name"`
		Label      string      `json:"label"`
		Type       string      `json:"type"`
		Query      string      `json:"query"`
		Datasource *datasource `json:"datasource,omitempty"`
		Refresh    int         `json:"refresh"` // 1: when the dashboard is loaded
		Multi      bool        `json:"multi"`
		IncludeAll bool        `json:"includeAll"`
		AllValue   string      `json:"allValue,omitempty"`
	}
	datasource struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	panel struct {
		ID          uint32       `json:"id"`
		Type        string       `json:"type"`
		Title       string       `json:"title"`
		Description string       `json:"description,omitempty"`
		GridPos     gridPos      `json:"gridPos"`
		Collapsed   *bool        `json:"collapsed,omitempty"` // of a row, as Panels: those of an open row follow it
		Panels      *[]struct{}  `json:"panels,omitempty"`
		Datasource  *datasource  `json:"datasource,omitempty"`
		FieldConfig *fieldConfig `json:"fieldConfig,omitempty"`
		Targets     []target     `json:"targets,omitempty"`
	}
	gridPos struct {
		H uint32 `json:"h"`
		W uint32 `json:"w"`
		X uint32 `json:"x"`
		Y uint32 `json:"y"`
	}
	fieldConfig struct {
		Defaults  fieldDefaults `json:"defaults"`
		Overrides []struct{}    `json:"overrides"`
	}
	fieldDefaults struct {
		Unit string   `json:"unit"`
		Min  *float64 `json:"min,omitempty"`
	}
	target struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	}
)

// graph is a panel of weft's dashboard: what it shows, in which of Grafana's units, and the queries with their legends.
type graph struct {
	title, unit string
	queries     []target
}

// rows are the dashboard's rows, from the top.
func rows() []struct {
	title  string
	graphs []graph
} {
	one := func(title, unit, expr, legend string) graph { return graph{title, unit, []target{{"A", expr, legend}}} }
	const of = `{node=~"$node"}`
	quantile := func(q, metric, labels, by string) string {
		return `histogram_quantile(` + q + `, sum by (` + by + `le) (rate(` + metric + `_bucket{` + labels + `node=~"$node"}[$__rate_interval])))`
	}
	return []struct {
		title  string
		graphs []graph
	}{
		{"Nodes and peers", []graph{
			one("Agents that cannot serve new pods", "short", `weft_ready`+of+` == 0`, "{{node}}"),
			one("Attachments", "short", `weft_attachments`+of, "{{node}}"),
			one("VMs", "short", `weft_vms`+of, "{{node}}"),
			one("Peers that do not answer", "short", `weft_peers_down`+of, "{{node}}"),
			one("Longest round trip time to a peer", "s", `weft_peer_rtt_worst_seconds`+of, "{{node}}"),
			one("Mean round trip time to the peers that are up", "s",
				`weft_peer_rtt_sum_seconds`+of+` / (weft_peers`+of+` - weft_peers_down`+of+`)`, "{{node}}"),
			one("Largest packet that reaches the peer", "bytes", `weft_peer_path_mtu_bytes`+of, "{{node}} to {{peer}}"),
			one("Round trip time to each peer", "s", `weft_peer_rtt_seconds`+of, "{{node}} to {{peer}}"),
			one("Peers that packets of the pods' MTU do not reach", "short", `weft_peers_narrow`+of, "{{node}}"),
			one("Versions", "short", `count by (version) (weft_build_info)`, "{{version}}"),
		}},
		{"Pools", []graph{
			one("Part of the pool in blocks of nodes", "percentunit",
				`max by (pool) (weft_pool_addresses_in_blocks / weft_pool_addresses)`, "{{pool}}"),
			{"Addresses of this node's blocks", "short", []target{
				{"A", `weft_ipam_addresses_allocated` + of, "{{node}} {{pool}} allocated"},
				{"B", `weft_ipam_addresses_free` + of, "{{node}} {{pool}} free"},
			}},
			{"Findings of audits", "short", []target{
				{"A", `max by (pool) (weft_pool_findings)`, "{{pool}}"},
				{"B", `weft_ipam_node_findings` + of, "{{node}}"},
			}},
		}},
		{"CNI", []graph{
			{"Duration of ADD", "s", []target{
				{"A", quantile("0.5", "weft_cni_call_duration_seconds", `verb="ADD", `, ""), "median"},
				{"B", quantile("0.99", "weft_cni_call_duration_seconds", `verb="ADD", `, ""), "p99"},
			}},
			{"Duration of DEL", "s", []target{
				{"A", quantile("0.5", "weft_cni_call_duration_seconds", `verb="DEL", `, ""), "median"},
				{"B", quantile("0.99", "weft_cni_call_duration_seconds", `verb="DEL", `, ""), "p99"},
			}},
			one("Failed calls", "cps",
				`sum by (verb, code) (rate(weft_cni_call_duration_seconds_count{code!="0", node=~"$node"}[$__rate_interval]))`, "{{verb}}, code {{code}}"),
		}},
		{"Policies", []graph{
			{"Policies", "short", []target{
				{"A", `max(weft_policies` + of + `)`, "all"},
				{"B", `max(weft_policies_invalid` + of + `)`, "not enforced in full"},
			}},
			one("Time until a change is in the rules, p99", "s", quantile("0.99", "weft_policy_programming_seconds", "", "node, "), "{{node}}"),
			one("Denied packets", "pps",
				`sum by (rule) (rate(weft_policy_denied_packets_total`+of+`[$__rate_interval]))`, "{{rule}}"),
			one("Agents whose policies are not synced", "short", `weft_policy_synced`+of+` == 0`, "{{node}}"),
			one("Closed interfaces", "short", `weft_policy_quarantined_interfaces`+of, "{{node}}"),
			one("Connections ended by changed policies", "cps", `rate(weft_policy_connections_reset_total`+of+`[$__rate_interval])`, "{{node}}"),
		}},
		{"Repairs", []graph{
			one("Repaired kernel objects", "short", `sum by (kind) (increase(weft_repairs_total`+of+`[$__rate_interval]))`, "{{kind}}"),
			one("Repairs of the policy table", "short", `increase(weft_policy_repairs_total`+of+`[$__rate_interval])`, "{{node}}"),
			one("Garbage collections", "short", `sum by (outcome) (increase(weft_gc_runs_total`+of+`[$__rate_interval]))`, "{{outcome}}"),
		}},
		{"Controller", []graph{
			one("Leader", "short", `weft_controller_leader`, "{{node}}"),
			one("Pools from which nothing can be allocated", "short", `weft_pool_allocatable == 0`, "{{pool}}"),
			one("Blocks of nodes", "short", `max by (pool) (weft_pool_blocks)`, "{{pool}}"),
		}},
	}
}

// drawn is the dashboard as Grafana reads it.
func drawn(t *testing.T) []byte {
	t.Helper()
	source := &datasource{"prometheus", "${datasource}"}
	d := dashboard{
		UID: "weft", Title: "weft", Tags: []string{"weft", "kubernetes", "network"}, SchemaVersion: 39, Editable: true,
		Description: "The network of pods and VMs: nodes, pools, CNI calls, policies, repairs. Alerts: docs/tasks/alerts.md.",
		Refresh:     "30s", Time: timeRange{"now-3h", "now"},
		Templating: templating{[]variable{
			{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus", Refresh: 1},
			{Name: "node", Label: "Node", Type: "query", Query: "label_values(weft_ready, node)", Datasource: source, Refresh: 1,
				Multi: true, IncludeAll: true, AllValue: ".*"},
		}},
		Annotations: annotations{[]struct{}{}},
	}
	const width, height, across = 8, 7, 3
	least, y := 0.0, uint32(0)
	add := func(p panel) {
		p.ID = uint32(len(d.Panels) + 1)
		d.Panels = append(d.Panels, p)
	}
	for _, row := range rows() {
		add(panel{Type: "row", Title: row.title, GridPos: gridPos{1, width * across, 0, y}, Collapsed: new(bool), Panels: &[]struct{}{}})
		y++
		for i, g := range row.graphs {
			if i > 0 && i%across == 0 {
				y += height
			}
			add(panel{
				Type: "timeseries", Title: g.title, GridPos: gridPos{height, width, uint32(i%across) * width, y}, Datasource: source,
				FieldConfig: &fieldConfig{fieldDefaults{g.unit, &least}, []struct{}{}}, Targets: g.queries,
			})
		}
		y += height
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestDashboard: the chart's dashboard is what this file describes, of metrics that docs/reference/metrics.md has, which is
// compared with the code.
func TestDashboard(t *testing.T) {
	const file = "chart/files/dashboard.json"
	want := drawn(t)
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(want), string(read(t, file))); diff != "" {
		t.Errorf("go test ./deploy -update\n%s: %s", file, diff)
	}
	reference := string(read(t, "../docs/reference/metrics.md"))
	for _, name := range regexp.MustCompile(`\bweft_\w+`).FindAllString(string(want), -1) {
		histogram := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
		if !strings.Contains(reference, "| `"+name+"` |") && !strings.Contains(reference, "| `"+histogram+"` | histogram |") {
			t.Errorf("docs/reference/metrics.md has no metric %s", name)
		}
	}
}
