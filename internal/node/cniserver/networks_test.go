// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/node/multuslog"
)

// held returns a record of a pod's network.
func held(network, id, ifName string, primary bool) attach.Record {
	return attach.Record{
		Stage: attach.Done, Network: model.Network{Name: network, Plugins: []model.PluginConf{{Type: "x"}}},
		Result: &model.Result{},
		Request: model.Request{
			Network: network, ContainerID: id, IfName: ifName, Part: "outer/eth0",
			Origin: &model.Origin{Network: "ns/" + network, Primary: primary},
		},
	}
}

func verbsOf(t *testing.T, rec *recorder) *verbs {
	t.Helper()
	log := logTo(t)
	return &verbs{
		cfg: &Config{Attacher: rec, Records: rec}, log: log, networks: &multinet.Resolver{}, reporter: newStatusReporter(nil, false, log),
		pods: &podTable{}, queue: &queue{dir: t.TempDir()}, multusLog: &multuslog.Log{Log: log, Now: time.Now},
	}
}

func callFor(verb, id string, valid ...model.AttachmentKey) cni.Call {
	r := model.Request{Network: "outer", CNIVersion: "1.1.0", ContainerID: id, IfName: "eth0"}
	if verb == cni.GC {
		r.IfName = ""
	}
	return cni.Call{
		Command: verb, Request: r, Valid: valid,
		Conf: []byte(`{"name":"outer","cniVersion":"1.1.0","type":"multus","cniDir":"/nonsuch",
	  "delegates":[{"name":"pods","type":"ptp"}]}`),
	}
}

// TestAllNetworks: CHECK and DEL cover all networks of a pod, except a delegate that it has replaced by another one.
func TestAllNetworks(t *testing.T) {
	rec := &recorder{
		records: []attach.Record{
			held("pods", "a", "eth0", true), held("wire", "a", "net1", false), held("other", "b", "eth0", true),
		},
	}
	s := verbsOf(t, rec)
	for _, tc := range []struct {
		verb, id string
		want     []string
	}{
		{"CHECK", "a", []string{"CHECK pods eth0", "CHECK wire net1"}},
		{"CHECK", "b", []string{"CHECK other eth0"}},
		{"DEL", "a", []string{"DEL pods eth0", "DEL wire net1"}},
		{"DEL", "b", []string{"DEL other eth0"}},
		{"DEL", "unknown", []string{"DEL pods eth0"}},
	} {
		call := callFor(tc.verb, tc.id)
		err := s.check(t.Context(), call, nil)
		if tc.verb == "DEL" {
			rec.seen()
			err = s.del(t.Context(), call, nil, nil)
		}
		if d := cmp.Diff(tc.want, rec.seen()); d != "" || err != nil {
			t.Errorf("%s %s: %v %s", tc.verb, tc.id, err, d)
		}
	}
}

// TestGCOfAllNetworks: GC also collects the networks that pods selected, and keeps the attachments of valid calls.
func TestGCOfAllNetworks(t *testing.T) {
	foreign := held("wire", "d", "net1", false)
	foreign.Request.Part = "elsewhere/eth0"
	rec := &recorder{records: []attach.Record{
		held("pods", "a", "eth0", true), held("wire", "a", "net1", false), held("pods", "b", "eth0", true),
		held("wire", "b", "net1", false), foreign,
	}}
	s := verbsOf(t, rec)
	if err := s.gc(t.Context(), callFor("GC", "", model.AttachmentKey{ContainerID: "a", IfName: "eth0"})); err != nil {
		t.Fatal(err)
	}
	want := []string{"GC pods", "GC wire"}
	if d := cmp.Diff(want, rec.seen()); d != "" {
		t.Error(d)
	}
	valid := map[model.AttachmentKey]bool{}
	for _, k := range rec.valid {
		valid[k] = true
	}
	keys := map[model.AttachmentKey]bool{
		{Network: "pods", ContainerID: "a", IfName: "eth0"}: true, {Network: "wire", ContainerID: "a", IfName: "net1"}: true,
		{Network: "wire", ContainerID: "d", IfName: "net1"}: true,
	}
	if d := cmp.Diff(keys, valid); d != "" {
		t.Error(d)
	}
}

// TestGCWithPodsOfMultus: GC keeps the attachments that Multus made, also on networks that weft's pods have.
func TestGCWithPodsOfMultus(t *testing.T) {
	dir := t.TempDir()
	remember := func(id, text string) {
		if err := os.WriteFile(filepath.Join(dir, id), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	remember(
		"m", fmt.Sprintf(`[{"Conf":{"name":"pods"},"Bytes":%q},{"Conf":{"name":"wire"},"ifnameRequest":"lan","Bytes":%q}]`,
			encode(`{"name":"pods","type":"ptp"}`), encode(`{"name":"wire","type":"macvlan"}`)))
	rec := &recorder{records: []attach.Record{held("pods", "a", "eth0", true), held("wire", "a", "net1", false)}}
	s := verbsOf(t, rec)
	call := callFor("GC", "", model.AttachmentKey{ContainerID: "a", IfName: "eth0"}, model.AttachmentKey{
		ContainerID: "m", IfName: "eth0",
	})
	call.Conf = []byte(strings.Replace(string(call.Conf), "/nonsuch", dir, 1))
	if err := s.gc(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	want := model.AttachmentKey{Network: "wire", ContainerID: "m", IfName: "lan"}
	if !slices.Contains(rec.valid, want) {
		t.Errorf("%v is not among %v", want, rec.valid)
	}
	rec.seen()
	remember("m", "nonsense")
	if err := s.gc(t.Context(), call); err == nil || len(rec.seen()) > 0 {
		t.Errorf("cleaned without knowing what a pod has: %v", err)
	}
}
