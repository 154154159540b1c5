// SPDX-License-Identifier: Apache-2.0

package flow_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
)

// sample is a connection of a pod to a VM through a Service.
func sample() flow.Record {
	via := flow.Endpoint{
		Addr: netip.MustParseAddr("10.96.0.7"), Port: 5432, Identity: flow.Identity{Kind: flow.ServiceEnd, Name: "shop/db"},
	}
	return flow.Record{
		Node: "node1", Kind: flow.New, Protocol: "tcp", State: "established", Direction: flow.Egress, Verdict: flow.Allowed,
		From: flow.Endpoint{Addr: netip.MustParseAddr("10.42.1.2"), Port: 40000, Identity: flow.Identity{
			Kind: flow.PodEnd, Name: "shop/web-0", Node: "node1",
		}},
		To: flow.Endpoint{Addr: netip.MustParseAddr("10.8.0.9"), Port: 15432, Identity: flow.Identity{
			Kind: flow.VMEnd, Name: "vms/db", Pod: "vms/virt-launcher-db-x", Node: "node2", Network: "vms/fast",
		}},
		Via:    &via,
		Reason: "IP_RPFILTER at eth0",
		Decisions: []flow.Decision{{
			Direction: "egress", Allowed: true, Rule: 1,
			Policies: []model.PolicyKey{{Kind: "NetworkPolicy", Namespace: "shop", Name: "out"}},
		}},
	}
}

func sampleLabels(pod string) map[string]string {
	return map[string]map[string]string{
		"shop/web-0": {"app": "web", "tier": "front"}, "vms/virt-launcher-db-x": {"app": "db"},
	}[pod]
}

// Each field is compared at the ends that it is about.
func TestFilter(t *testing.T) {
	type c struct {
		field flow.Field
		side  flow.Side
		value string
		want  bool
	}
	for _, c := range []c{
		{flow.FieldPod, flow.Either, "shop/web-0", true},
		{flow.FieldPod, flow.From, "shop/web-*", true},
		{flow.FieldPod, flow.To, "shop/web-0", false},
		{flow.FieldPod, flow.To, "vms/virt-launcher-*", true},
		{flow.FieldPod, flow.Either, "*/db", false}, // a Service and a VM
		{flow.FieldPod, flow.Either, "shop/web", false},
		{flow.FieldPod, flow.Either, "*", true},
		{flow.FieldVM, flow.Either, "vms/db", true},
		{flow.FieldVM, flow.From, "vms/db", false},
		{flow.FieldVM, flow.Either, "shop/*", false},
		{flow.FieldService, flow.To, "shop/db", true},
		{flow.FieldService, flow.From, "shop/db", false},
		{flow.FieldNamespace, flow.From, "shop", true},
		{flow.FieldNamespace, flow.From, "vms", false},
		{flow.FieldNamespace, flow.To, "vms", true},
		{flow.FieldNamespace, flow.To, "shop", true}, // the Service's
		{flow.FieldNamespace, flow.Either, "sh*", true},
		{flow.FieldWorkload, flow.From, "shop/web", true},
		{flow.FieldWorkload, flow.From, "shop/*", true},
		{flow.FieldWorkload, flow.From, "shop/web-0", false},
		{flow.FieldWorkload, flow.To, "*/*", false}, // a VM without one, and a Service
		{flow.FieldLabel, flow.From, "app=web", true},
		{flow.FieldLabel, flow.From, "app==web,tier", true},
		{flow.FieldLabel, flow.From, "app=web,tier=back", false},
		{flow.FieldLabel, flow.To, "app=web", false},
		{flow.FieldLabel, flow.To, "app!=web", true},
		{flow.FieldLabel, flow.To, "!tier", true},
		{flow.FieldLabel, flow.From, "!tier", false},
		{flow.FieldIP, flow.Either, "10.42.0.0/16", true},
		{flow.FieldIP, flow.To, "10.42.0.0/16", false},
		{flow.FieldIP, flow.To, "10.8.0.9", true},
		{flow.FieldIP, flow.To, "10.96.0.7", true},
		{flow.FieldPort, flow.Either, "5432", true},
		{flow.FieldPort, flow.To, "15000-16000", true},
		{flow.FieldPort, flow.From, "5432", false},
		{flow.FieldNode, flow.From, "node1", true},
		{flow.FieldNode, flow.To, "node1", false},
		{flow.FieldNode, flow.Either, "node*", true},
		{flow.FieldNetwork, flow.To, "vms/fast", true},
		{flow.FieldNetwork, flow.From, "vms/fast", false},
		{flow.FieldNetwork, flow.From, flow.ClusterNetwork, true},
		{flow.FieldNetwork, flow.To, flow.ClusterNetwork, false},
		{flow.FieldVerdict, flow.Either, "allowed", true},
		{flow.FieldVerdict, flow.Either, "denied", false},
		{flow.FieldKind, flow.Either, "new", true},
		{flow.FieldKind, flow.Either, "end", false},
		{flow.FieldProtocol, flow.Either, "tcp", true},
		{flow.FieldProtocol, flow.Either, "47", false},
		{flow.FieldTCPState, flow.Either, "established", true},
		{flow.FieldTCPState, flow.Either, "close-wait", false},
		{flow.FieldReason, flow.Either, "rpfilter", true},
		{flow.FieldReason, flow.Either, "mtu", false},
		{flow.FieldPolicy, flow.Either, "shop/out", true},
		{flow.FieldPolicy, flow.Either, "*/out", true},
		{flow.FieldPolicy, flow.Either, "shop/in", false},
		{flow.FieldFamily, flow.Either, "4", true},
		{flow.FieldFamily, flow.Either, "6", false},
	} {
		for _, not := range []bool{false, true} {
			var f flow.Filter
			if err := f.Add(c.field, c.side, not, c.value); err != nil {
				t.Fatal(err)
			}
			f.SetWorkloads(func(pod string) string { return map[string]string{"shop/web-0": "shop/web"}[pod] })
			if got := f.Match(sample(), sampleLabels); got != (c.want != not) {
				t.Errorf("%s %s %q, not %t: %t", c.side, c.field, c.value, not, got)
			}
		}
	}
}

// Values of one field are alternatives, fields are combined, and what --not excludes stays out.
func TestFilterCombined(t *testing.T) {
	type value struct {
		field flow.Field
		side  flow.Side
		not   bool
		value string
	}
	for name, c := range map[string]struct {
		values []value
		want   bool
	}{
		"none":         {nil, true},
		"alternatives": {[]value{{flow.FieldPort, "", false, "1"}, {flow.FieldPort, "", false, "5432"}}, true},
		"both fields":  {[]value{{flow.FieldPort, "", false, "5432"}, {flow.FieldProtocol, "", false, "udp"}}, false},
		"from and to":  {[]value{{flow.FieldNamespace, flow.From, false, "shop"}, {flow.FieldVM, flow.To, false, "vms/*"}}, true},
		"and not":      {[]value{{flow.FieldNamespace, "", false, "shop"}, {flow.FieldPort, "", true, "5432"}}, false},
		"not either":   {[]value{{flow.FieldPort, "", true, "1"}, {flow.FieldPort, "", true, "5432"}}, false},
	} {
		var f flow.Filter
		for _, v := range c.values {
			if err := f.Add(v.field, v.side, v.not, v.value); err != nil {
				t.Fatal(err)
			}
		}
		if got := f.Match(sample(), sampleLabels); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A value that no flow can have is refused, with what is expected.
func TestFilterRefuses(t *testing.T) {
	for _, c := range []struct {
		field       flow.Field
		value, hint string
	}{
		{flow.FieldIP, "10.42", "10.42.1.2"},
		{flow.FieldPort, "0", "443"},
		{flow.FieldPort, "9-8", "443"},
		{flow.FieldPort, "http", "443"},
		{flow.FieldVerdict, "forwarded", "allowed"},
		{flow.FieldKind, "renewed", "tracked"},
		{flow.FieldProtocol, "quic", "udp"},
		{flow.FieldProtocol, "6", "tcp"},
		{flow.FieldFamily, "5", "4"},
		{flow.FieldTCPState, "open", "established"},
		{flow.FieldLabel, "=x", "app=web"},
		{flow.FieldPod, "[", "a name"},
		{flow.FieldPod, "", "a name"},
		{flow.FieldReason, "", "IP_RPFILTER"},
	} {
		var f flow.Filter
		err := f.Add(c.field, flow.Either, false, c.value)
		if err == nil || !strings.Contains(err.Error(), c.value) || !strings.Contains(err.Error(), c.hint) {
			t.Errorf("%s %q: %v", c.field, c.value, err)
		}
	}
}

// What a node decides itself leaves out nothing that the whole filter selects.
func TestLocal(t *testing.T) {
	var f flow.Filter
	for _, c := range []flow.Condition{
		{Field: flow.FieldPod, Side: flow.To, Values: []string{"vms/*"}},
		{Field: flow.FieldPort, Values: []string{"5432", "80"}},
		{Field: flow.FieldVerdict, Not: true, Values: []string{"denied"}},
	} {
		for _, v := range c.Values {
			if err := f.Add(c.Field, c.Side, c.Not, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	local, err := flow.NewFilter(f.Local())
	if err != nil || len(local.Conditions()) != 2 {
		t.Fatalf("%v: %+v", err, local.Conditions())
	}
	unnamed := sample()
	unnamed.To.Identity = flow.Identity{Kind: flow.OutsideEnd}
	if !local.Match(unnamed, nil) || f.Match(unnamed, nil) || !f.Match(sample(), nil) {
		t.Error("the node's part of the filter does not leave the rest to the reader")
	}
	unnamed.Verdict = flow.DeniedVerdict
	if local.Match(unnamed, nil) {
		t.Error("the node sends what is not wanted")
	}
}
