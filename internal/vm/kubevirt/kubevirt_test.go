// SPDX-License-Identifier: Apache-2.0

package kubevirt

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	whole "kubevirt.io/api/core/v1"
)

// compare compares a type with KubeVirt's: each field exists under the same key and with an equivalent type. It returns
// the number of fields.
func compare(t *testing.T, path string, mine, theirs reflect.Type) int {
	t.Helper()
	if mine == theirs {
		return 0
	}
	if mine.Kind() != theirs.Kind() {
		t.Errorf("%s is a %s, KubeVirt's is a %s", path, mine.Kind(), theirs.Kind())
		return 0
	}
	n := 0
	switch mine.Kind() {
	case reflect.Pointer, reflect.Slice:
		n = compare(t, path, mine.Elem(), theirs.Elem())
	case reflect.Map:
		n = compare(t, path+"[key]", mine.Key(), theirs.Key()) + compare(t, path+"[]", mine.Elem(), theirs.Elem())
	case reflect.Struct:
		for i := range mine.NumField() {
			f := mine.Field(i)
			g, ok := theirs.FieldByName(f.Name)
			if !ok || len(g.Index) != 1 || f.Tag.Get("json") != g.Tag.Get("json") || f.Anonymous != g.Anonymous {
				t.Errorf("%s.%s (%s): KubeVirt has %q %s", path, f.Name, f.Tag, g.Name, g.Tag)
				continue
			}
			n += 1 + compare(t, path+"."+f.Name, f.Type, g.Type)
		}
	}
	return n
}

func TestSameAsKubeVirt(t *testing.T) {
	for _, c := range []struct{ mine, theirs any }{
		{VirtualMachineInstance{}, whole.VirtualMachineInstance{}}, {VirtualMachine{}, whole.VirtualMachine{}},
	} {
		mine := reflect.TypeOf(c.mine)
		if n := compare(t, mine.Name(), mine, reflect.TypeOf(c.theirs)); n < 100 {
			t.Errorf("%s: %d fields were compared", mine.Name(), n)
		}
	}
	for _, c := range [][2]string{
		{DeprecatedNonRootVMIAnnotation, whole.DeprecatedNonRootVMIAnnotation},
		{MigrationTransportUnixAnnotation, whole.MigrationTransportUnixAnnotation},
		{VirtIO, whole.VirtIO},
		{InterfaceStateLinkUp, string(whole.InterfaceStateLinkUp)},
		{InterfaceStateLinkDown, string(whole.InterfaceStateLinkDown)},
		{InterfaceStateAbsent, string(whole.InterfaceStateAbsent)},
		{string(DiskBusSATA), string(whole.DiskBusSATA)},
		{HostDiskExistsOrCreate, string(whole.HostDiskExistsOrCreate)},
		{MigrationTransportUnix, string(whole.MigrationTransportUnix)},
		{DefaultPodNetwork().Name, whole.DefaultPodNetwork().Name},
		{DefaultBridgeNetworkInterface().Name, whole.DefaultBridgeNetworkInterface().Name},
		{DefaultMasqueradeNetworkInterface().Name, whole.DefaultMasqueradeNetworkInterface().Name},
	} {
		if c[0] != c[1] {
			t.Errorf("%q is KubeVirt's %q", c[0], c[1])
		}
	}
}

// TestSame: same finds differences.
func TestSame(t *testing.T) {
	type other struct {
		Path     string            `json:"file"`
		Type     int               `json:"type"`
		Capacity resource.Quantity `json:"capacity,omitempty"`
		metav1.TypeMeta
	}
	seen := &testing.T{}
	compare(seen, "HostDisk", reflect.TypeOf(HostDisk{}), reflect.TypeOf(other{}))
	if !seen.Failed() {
		t.Error("types that differ were not found")
	}
}
