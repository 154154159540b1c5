// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

func vmRequest(conf, id, vm string) ipam.Request {
	q := req(conf, id)
	q.VM = &model.VMRef{Namespace: "shop", Name: vm}
	return q
}

// TestVM: a VM gets its addresses again on its node, and no other pod does while others are free; then the one that was
// left longest ago goes. What migrates here has none here.
func TestVM(t *testing.T) {
	dir := t.TempDir()
	a := New(Config{DataDir: dir, CallerKnows: true})
	conf := section(`{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/29"}],[{"subnet":"fd00::/64"}]]}`)
	add := func(q ipam.Request) string {
		t.Helper()
		r, err := a.Add(t.Context(), q)
		if err != nil {
			return err.Error()
		}
		return prefixes(r)
	}
	del := func(q ipam.Request) {
		t.Helper()
		if err := a.Del(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	is := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	const first, second = "10.1.0.2/29 via 10.1.0.1, fd00::2/64 via fd00::1",
		"10.1.0.3/29 via 10.1.0.1, fd00::3/64 via fd00::1"
	is("db", add(vmRequest(conf, "c1", "db")), first)
	is("web", add(vmRequest(conf, "c2", "web")), second)
	del(vmRequest(conf, "c1", "db"))
	del(vmRequest(conf, "c2", "web"))
	want := map[string]string{
		"10.1.0.2": "vm:shop/db\r\neth0", "fd00::2": "vm:shop/db\r\neth0", "10.1.0.3": "vm:shop/web\r\neth0",
		"fd00::3":            "vm:shop/web\r\neth0",
		"last_reserved_ip.0": "10.1.0.3", "last_reserved_ip.1": "fd00::3", "lock": "",
	}
	if d := cmp.Diff(want, tree(t, filepath.Join(dir, "net"))); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	if err := a.GC(t.Context(), req(conf, ""), nil); err != nil {
		t.Fatal(err)
	}
	is("db again", add(vmRequest(conf, "c3", "db")), first)
	is("db beside itself", add(vmRequest(conf, "c4", "db")), "10.1.0.4/29 via 10.1.0.1, fd00::4/64 via fd00::1")
	del(req(conf, "c4"))
	incoming := vmRequest(conf, "c5", "web")
	incoming.Incoming = true
	is("web from another node", add(incoming), "10.1.0.5/29 via 10.1.0.1, fd00::5/64 via fd00::1")
	del(vmRequest(conf, "c3", "db"))
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "net", "10.1.0.2"), old, old); err != nil {
		t.Fatal(err)
	}
	v4 := section(`{"type":"host-local","subnet":"10.1.0.0/29"}`)
	is("others", add(req(v4, "o1")), "10.1.0.6/29 via 10.1.0.1")
	is("others", add(req(v4, "o2")), "10.1.0.4/29 via 10.1.0.1")
	is("the one that was left first", add(req(v4, "o3")), "10.1.0.2/29 via 10.1.0.1")
	is("the last", add(req(v4, "o4")), "10.1.0.3/29 via 10.1.0.1")
	if f := fault(t, func() error { _, err := a.Add(t.Context(), req(v4, "o5")); return err }()); f.Code !=
		model.CodeExhausted {
		t.Errorf("when nothing is left: %v", f)
	}
	if why := a.NotSticky(vmRequest(conf, "x", "db")); why == "" {
		t.Error("a node's own addresses stay everywhere")
	}
}
