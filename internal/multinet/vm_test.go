// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
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
