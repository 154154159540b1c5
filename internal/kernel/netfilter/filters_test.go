// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"os"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// TestTables makes a table, changes nothing of another one, and deletes it; the socket is opened once.
func TestTables(t *testing.T) {
	ns := nettest.NS(t, "n")
	f := New(ns)
	if f.nft != nil {
		t.Fatal("a socket is open before anything was asked for")
	}
	mine := []state.Table{
		{Family: "inet", Name: "weft_test", Chains: []state.Chain{{Name: "in", Rules: []state.NftRule{{Text: "accept"}}}}},
	}
	if err := f.ApplyTables(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	n, err := f.Netfilter()
	if err != nil || n != f.nft {
		t.Errorf("another socket was opened (%v)", err)
	}
	if all, err := n.ReadAll(t.Context()); err != nil || len(all) != 1 || all[0].Name != "weft_test" {
		t.Errorf("%+v %v", all, err)
	}
	for range 2 { // a missing one is no error
		if err := f.RemoveTables(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := n.ReadAll(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v is left, %v", all, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
