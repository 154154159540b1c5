// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestPoolsOfCalico: pods get addresses from one of Calico's pools without a pool of weft's; reserved addresses are not
// allocated. The agent that runs the controller reports it, and its metrics count the pools' addresses.
func TestPoolsOfCalico(t *testing.T) {
	nettest.EndToEnd(t)
	p := newTwo(t, "addresses: pools")
	for _, text := range []string{
		`{"apiVersion":"crd.projectcalico.org/v1","kind":"IPPool","metadata":{"name":"theirs"},"spec":{"cidr":"10.66.0.0/24","blockSize":28,"nodeSelector":"all()"}}`,
		`{"apiVersion":"crd.projectcalico.org/v1","kind":"IPReservation","metadata":{"name":"r"},"spec":{"reservedCIDRs":["10.66.0.0/28","10.66.0.128/25"]}}`,
	} {
		o, err := store.NewObject([]byte(text))
		if err == nil {
			_, err = p.store.Create(t.Context(), o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// The agents retry pools periodically; a restart makes them retry at once.
	for _, w := range p.nodes {
		w.stop()
		w.configured(
			fmt.Sprintf(
				"metrics: {address: '127.0.0.1:9119'}\ninstall: {confDir: %q}\nnetwork: {mode: cluster, addresses: pools}\n",
				w.path("net.d"),
			),
		)
		w.start()
	}
	given := map[netip.Addr]bool{}
	for i := range 6 {
		_, addrs := p.pod(p.nodes[i%2], fmt.Sprint("pod", i))
		for _, a := range addrs {
			if given[a] || !netip.MustParsePrefix("10.66.0.0/25").Contains(a) ||
				netip.MustParsePrefix("10.66.0.0/28").Contains(a) {
				t.Errorf("address %s is given twice, reserved or none of the pool", a)
			}
			given[a] = true
		}
	}
	if len(given) != 6 {
		t.Errorf("%d addresses", len(given))
	}
	leads := ""
	p.until("one agent tells of the pool", func() bool {
		leads = ""
		for i, w := range p.nodes {
			if text := w.web("GET /metrics HTTP/1.0"); strings.Contains(text, "\nweft_controller_leader 1") {
				leads += fmt.Sprint(i)
				if !strings.Contains(text, `weft_pool_allocatable{pool="theirs"} 1`) ||
					!strings.Contains(text, `weft_pool_addresses{pool="theirs"} 256`) {
					return false
				}
			}
		}
		return leads != ""
	})
	for i, w := range p.nodes {
		text := w.web("GET /metrics HTTP/1.0")
		// Three pods each. How many blocks a node has depends on whether it has claimed its spare one.
		for _, want := range []string{
			`weft_ipam_addresses_allocated{pool="theirs"} 3`, `weft_ipam_blocks{pool="theirs"} `,
			`weft_ipam_addresses_free{pool="theirs"} `, "weft_cni_calls_in_progress ",
		} {
			if !strings.Contains(text, "\n"+want) {
				t.Errorf("node %d: missing: %s", i+1, want)
			}
		}
	}
	if len(leads) != 1 {
		t.Errorf("nodes %q look after the pools", leads)
	}
	var o store.Object
	p.until("the pool's condition", func() bool { // is written after it was measured
		var err error
		o, err = p.store.Get(store.AddressPools().Key("", "theirs"))
		return err == nil && o.Conditions()[model.ConditionAllocatable].True
	})
	pool, err := o.AddressPool()
	if c := o.Conditions()[model.ConditionAllocatable]; err != nil || !c.True || len(pool.Excluded) != 2 ||
		pool.AssignmentMode != model.AssignAutomatic {
		t.Errorf("%+v %+v %v", pool, c, err)
	}
}
