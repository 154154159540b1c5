// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// TestVM: KubeVirt's annotations say for which VM a pod is there, and whether it migrates; the VM's own whether its
// addresses stay.
func TestVM(t *testing.T) {
	vm := &model.VMRef{Namespace: "shop", Name: "db"}
	for _, tt := range []struct {
		says map[string]string
		keep model.KeepAddress
		want model.Origin
		err  string
	}{
		{nil, "", model.Origin{}, ""},
		{map[string]string{MigrationKey: "m", KeepKey: "odd"}, "", model.Origin{}, ""}, // of no VM
		{map[string]string{DomainKey: "db"}, "", model.Origin{VM: vm}, ""},
		{map[string]string{DomainKey: "db"}, model.KeepNever, model.Origin{VM: vm, Keep: model.KeepNever}, ""},
		{
			map[string]string{DomainKey: "db", MigrationKey: "m", KeepKey: "true"},
			model.KeepNever,
			model.Origin{VM: vm, Incoming: true, Keep: model.KeepAlways},
			"",
		},
		{
			map[string]string{DomainKey: "db", KeepKey: "yes"},
			"",
			model.Origin{},
			`annotation weft.dev/keep-vm-address "yes" is neither true nor false ("true" or "false")`,
		},
	} {
		w := &resolving{r: &Resolver{Keep: tt.keep}, pod: &model.Pod{Namespace: "shop", Name: "p", Annotations: tt.says}}
		var o model.Origin
		err := w.readVM(&o)
		if tt.err != "" {
			if err == nil || err.Error() != tt.err {
				t.Errorf("%v: %v", tt.says, err)
			}
			continue
		}
		if d := cmp.Diff(tt.want, o); err != nil || d != "" {
			t.Errorf("%v: %v %s", tt.says, err, d)
		}
	}
	w := &resolving{r: &Resolver{}, pod: &model.Pod{Namespace: "shop", Annotations: map[string]string{DomainKey: "D B"}}}
	if err := w.readVM(&model.Origin{}); err == nil {
		t.Error("a name that nobody can have")
	}
}

// TestKeepGuest: the pod network's addresses must stay with a migrating VM whose guest has them by weft-direct, and with no
// other one.
func TestKeepGuest(t *testing.T) {
	for _, tt := range []struct {
		name, network, extra, typ string
		incoming                  bool
		keep, want                model.KeepAddress
	}{
		{"its guest has them", "default", "pod1", plugin.DirectType, true, "", model.KeepAlways},
		{"not migrating", "default", "pod1", plugin.DirectType, false, "", ""},
		{"the VM says that they do not stay", "default", "pod1", plugin.DirectType, true, model.KeepNever, model.KeepNever},
		{"another network's", "blue", "pod16477688c0e", plugin.DirectType, true, "", ""},
		{"another binding", "default", "pod1", "macvlan", true, "", ""},
	} {
		conf := `{"type":"` + tt.typ + `","args":{"cni":{"logicNetworkName":"` + tt.network + `"}}}`
		of := func(typ, conf, ifName string) Attachment {
			return Attachment{
				Network: model.Network{Plugins: []model.PluginConf{{Type: typ, Raw: []byte(conf)}}},
				Request: model.Request{IfName: ifName, Origin: &model.Origin{
					VM: &model.VMRef{Namespace: "shop", Name: "db"}, Incoming: tt.incoming, Keep: tt.keep,
				}},
			}
		}
		all := []Attachment{
			of("bridge", `{"type":"bridge"}`, "eth0"), of("macvlan", `{"type":"macvlan"}`, tt.extra), of(tt.typ, conf, "tap7"),
		}
		keepGuest(all)
		if got := all[0].Request.KeepAddress(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if got := all[1].Request.KeepAddress(); got != tt.keep {
			t.Errorf("%s: the other network: %q, want %q", tt.name, got, tt.keep)
		}
	}
	keepGuest([]Attachment{{}}) // of no pod
}

// kennel is a book that knows VMs.
type kennel struct {
	*book
	vm  string
	err error
}

func (k *kennel) VMInstance(_ context.Context, namespace, name string) (store.Object, error) {
	if namespace != "shop" || name != "db" {
		return store.Object{}, fmt.Errorf("VM %s/%s: %w", namespace, name, store.ErrNotFound)
	}
	if k.err != nil {
		return store.Object{}, k.err
	}
	return store.NewObject([]byte(`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"namespace":"shop","name":"db"},` +
		`"spec":{"domain":{"devices":{"interfaces":[` + k.vm + `]}},"networks":[{"name":"default","pod":{}},{"name":"blue","multus":{"networkName":"b"}}]}}`))
}

// TestGuestMAC: the pod of a VM with KubeVirt's bridge binding has the MAC that the VM requests on the pod network, and no
// other one has.
func TestGuestMAC(t *testing.T) {
	const key = "cni.projectcalico.org/hwAddr"
	for _, tt := range []struct {
		name, vm, pod string
		annotations   [][2]string
		want          string
	}{
		{"bridge", `{"name":"default","bridge":{},"macAddress":"02-00-00-00-00-0A"}`, "db", nil, "02:00:00:00:00:0a"},
		{"no MAC", `{"name":"default","bridge":{}}`, "db", nil, ""},
		{"masquerade", `{"name":"default","masquerade":{},"macAddress":"02:00:00:00:00:0a"}`, "db", nil, ""},
		{"another network", `{"name":"blue","bridge":{},"macAddress":"02:00:00:00:00:0a"}`, "db", nil, ""},
		{"no MAC address", `{"name":"default","bridge":{},"macAddress":"x"}`, "db", nil, ""},
		{"annotated", `{"name":"default","bridge":{},"macAddress":"02:00:00:00:00:0a"}`, "db", [][2]string{{key, "02:00:00:00:00:0b"}}, "02:00:00:00:00:0b"},
		{"gone", `{"name":"default","bridge":{},"macAddress":"02:00:00:00:00:0a"}`, "other", nil, ""},
		{"no VM", `{"name":"default","bridge":{},"macAddress":"02:00:00:00:00:0a"}`, "", nil, ""},
	} {
		o := &model.Origin{Annotations: tt.annotations}
		if tt.pod != "" {
			o.VM = &model.VMRef{Namespace: "shop", Name: tt.pod}
		}
		w := &resolving{r: &Resolver{Cluster: &kennel{vm: tt.vm}}}
		if err := w.addGuestMAC(t.Context(), o); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		var want [][2]string
		if tt.want != "" {
			want = [][2]string{{key, tt.want}}
		}
		if d := cmp.Diff(want, o.Annotations); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
	down := errors.New("down")
	w := &resolving{r: &Resolver{Cluster: &kennel{err: down}}}
	if err := w.addGuestMAC(t.Context(), &model.Origin{VM: &model.VMRef{Namespace: "shop", Name: "db"}}); !errors.Is(err, down) {
		t.Errorf("the API server does not answer: %v, want %v", err, down)
	}
}
