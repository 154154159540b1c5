// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"testing"
)

// A lease from a real server, with everything that it says; DEL gives it back.
func TestLease4(t *testing.T) {
	w := newWire(t)
	w.serve(range4, "--dhcp-option=option:dns-server,10.9.0.53,10.9.0.54", "--domain=example.org",
		"--dhcp-option=option:domain-search,a.example.org,b.example.org")
	k := w.keeper()
	a := ask(w.pod(), "c1", "")
	r := w.add(k, a)
	t.Log(show(r))
	if err := k.Check(t.Context(), a, r); err != nil {
		t.Error(err)
	}
	if err := k.Del(t.Context(), a); err != nil {
		t.Error(err)
	}
	w.until("release", func() bool { return w.given() == "" })
	if err := k.Check(t.Context(), a, r); err == nil {
		t.Error("CHECK after DEL")
	}
	if f := w.files(); len(f) > 0 {
		t.Errorf("files left: %v", f)
	}
}

func TestLease6(t *testing.T) {
	w := newWire(t)
	w.serve(range6, "--dhcp-option=option6:dns-server,[fd00:9::53]", "--dhcp-option=option6:domain-search,six.example.org")
	k := w.keeper()
	a := ask(w.pod(), "c1", `,"ipv4":false,"ipv6":true`)
	r := w.add(k, a)
	t.Log(show(r))
	if err := k.Del(t.Context(), a); err != nil {
		t.Error(err)
	}
	w.until("release", func() bool { return w.given() == "" })
}
