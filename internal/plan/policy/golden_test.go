// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden reads manifests from testdata/*.yaml, and compares what the node n1 would have with the file of the same
// name. Pods of n1 have an interface, as their annotations say.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			var out strings.Builder
			for _, table := range worldOf(t, file).Tables() {
				if table.Point.Pod.Name != "" {
					out.WriteString("# in pod " + table.Point.Pod.String() + "\n")
				}
				text, err := lang.Text(table.Table)
				if err != nil {
					t.Fatal(err)
				}
				out.WriteString(text)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".nft"
			if *update {
				if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("%s (-) and now (+):\n%s", golden, diff)
			}
		})
	}
}

// worldOf is an index that knows the manifests of a file.
func worldOf(t testing.TB, file string) *policy.Index {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	x := policy.New(policy.Config{Node: "n1", LogGroup: 5})
	x.SetSelf([]netip.Addr{netip.MustParseAddr("192.168.0.1")})
	for _, doc := range strings.Split(string(text), "\n---\n") {
		raw, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		o, err := store.NewObject(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := apply(x, o); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

func apply(x *policy.Index, o store.Object) error {
	switch {
	case o.Is("Namespace"):
		n, err := o.Namespace()
		x.SetNamespace(n)
		return err
	case o.Is("Node"):
		n, err := o.Node()
		x.SetNode(n)
		return err
	case o.Is("Pod"):
		p, err := o.Pod()
		if err != nil {
			return err
		}
		x.SetPod(p)
		return interfaces(x, p)
	}
	if strings.HasSuffix(o.Key.Group, "projectcalico.org") || o.Is("ServiceAccount") {
		return applyCalico(x, o)
	}
	p, err := o.Policy()
	if err == nil {
		x.SetPolicy(p)
	}
	return err
}

func applyCalico(x *policy.Index, o store.Object) error {
	switch {
	case calico.IsTier(o.Key):
		t, err := calico.Tier(o)
		if t != nil {
			x.Calico().SetTier(*t)
		}
		return err
	case calico.IsNetworkSet(o.Key):
		s, err := calico.NetworkSet(o)
		if s != nil {
			x.Calico().SetNetworkSet(*s)
		}
		return err
	case o.Is("ServiceAccount"):
		a, err := o.ServiceAccount()
		x.Calico().SetServiceAccount(a)
		return err
	}
	p, err := calico.Policy(o)
	if err == nil && len(p.Errors) > 0 {
		err = fmt.Errorf("%s: %q", o.Key, p.Errors)
	}
	x.SetPolicy(p)
	return err
}

// interfaces adds to the index the interfaces that the pod's annotation "endpoints" has as JSON; of those of the
// cluster's network every pod has one, routed on its node.
func interfaces(x *policy.Index, p model.Pod) error {
	all := []model.WorkloadEndpoint{
		{IfName: "eth0", HostLink: "cali-" + p.Name, Addrs: p.IPs, HostEnd: model.HostEndRouted},
	}
	if text := p.Annotations["endpoints"]; text != "" {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return err
		}
	}
	for _, e := range all {
		if !p.HostNetwork {
			e.Pod, e.Node = model.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, p.Node
			x.SetEndpoint(e)
		}
	}
	return nil
}
