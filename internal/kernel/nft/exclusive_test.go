// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// ports is a shared table with two maps whose elements exclude each other; an entry is "proto port" or "addr proto
// port".
func ports(owner string, entries ...string) state.Table {
	t := state.Table{Family: "inet", Name: "weft_ports", Shared: true, Sets: []state.Set{
		{Name: "p4", Key: "inet_proto . inet_service", Data: "ipv4_addr . inet_service", Exclusive: "p4"},
		{Name: "p4_at", Key: "ipv4_addr . inet_proto . inet_service", Data: "ipv4_addr . inet_service", Exclusive: "p4"},
	}}
	for _, e := range entries {
		key := strings.Fields(e)
		set := &t.Sets[len(key)-2]
		set.Elements = append(set.Elements, state.Element{
			Key: key, Val: []string{"10.1.0." + owner, "80"}, Comment: "owner " + owner,
		})
	}
	return t
}

// TestExclusive: the second owner is refused, by a connection that has read nothing and by one that has, and its undo
// deletes no element of the first one.
func TestExclusive(t *testing.T) {
	for _, c := range []struct {
		first, second string
		free          bool
	}{
		{"tcp 80", "tcp 80", false},
		{"192.0.2.1 tcp 80", "192.0.2.1 tcp 80", false},
		{"tcp 80", "192.0.2.1 tcp 80", false},
		{"192.0.2.1 tcp 80", "tcp 80", false},
		{"tcp 80", "udp 80", true},
		{"tcp 80", "tcp 81", true},
		{"tcp 80", "192.0.2.1 tcp 81", true},
		{"192.0.2.1 tcp 80", "192.0.2.2 tcp 80", true},
		{"192.0.2.1 tcp 80", "udp 80", true},
	} {
		for _, fresh := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %s, %t", c.first, c.second, fresh), func(t *testing.T) {
				ns := nettest.NS(t, "n")
				one := dial(t, ns)
				apply(t, one, ports("1", c.first, "tcp 443"))
				two := one
				if fresh {
					two = dial(t, ns)
				}
				want := ports("2", c.second)
				for range 2 {
					err := two.Apply(bounded(t), []state.Table{want})
					var taken *Taken
					switch {
					case c.free && err != nil:
						t.Fatal(err)
					case !c.free && (!errors.As(err, &taken) || taken.By != "owner 1" || strings.Join(taken.Key, " ") != c.second):
						t.Fatalf("%v", err)
					}
				}
				if err := two.Remove(bounded(t), []state.Table{want}); err != nil {
					t.Fatal(err)
				}
				first := ports("1", c.first, "tcp 443")
				have, err := one.Read(bounded(t), []state.Table{first})
				if err != nil {
					t.Fatal(err)
				}
				if d := lang.Diff([]state.Table{first}, have); len(d) > 0 {
					t.Errorf("of the first one's is missing %v", d)
				}
				// When the first one is removed the key is free.
				if err := one.Remove(bounded(t), []state.Table{first}); err != nil {
					t.Fatal(err)
				}
				apply(t, two, want)
			})
		}
	}
}

// TestExclusiveIsUnread: ports of all addresses are added by one transaction without reading, as long as no element is
// for a single address.
func TestExclusiveIsUnread(t *testing.T) {
	c := dial(t, nettest.NS(t, "n"))
	apply(t, c, ports("1", "tcp 1"))
	for i := range 3 {
		tables := []state.Table{ports("2", fmt.Sprintf("tcp %d", 10+i)), masq()}
		if i == 0 {
			apply(t, c, masq())
		}
		if done, err := c.addOnly(tables); !done || err != nil {
			t.Fatalf("port %d: not added by one transaction (%v)", i, err)
		}
	}
	one := []state.Table{ports("3", "192.0.2.1 tcp 5")}
	if done, _ := c.addOnly(one); done {
		t.Error("a port of one address was added unread")
	}
	apply(t, c, one...)
	if done, _ := c.addOnly([]state.Table{ports("4", "tcp 5")}); done {
		t.Error("a port was added unread beside one of a single address")
	}
}

// TestExclusiveAtOnce: of many that want the same port, some of all addresses and some of one, exactly one owner or
// kind of owners gets it.
func TestExclusiveAtOnce(t *testing.T) {
	ns := nettest.NS(t, "n")
	ctx := bounded(t)
	const many = 24
	errs := make([]error, many)
	done := make(chan int)
	for i := range many {
		go func() {
			defer func() { done <- i }()
			c, err := Dial(ns)
			if err != nil {
				errs[i] = err
				return
			}
			defer func() { _ = c.Close() }()
			entry := "tcp 80"
			if i%2 == 1 {
				entry = fmt.Sprintf("192.0.2.%d tcp 80", i)
			}
			want := []state.Table{ports(fmt.Sprint(i+1), entry)}
			if errs[i] = c.Apply(ctx, want); errs[i] != nil {
				errs[i] = errors.Join(errs[i], c.Remove(ctx, want))
			}
		}()
	}
	for range many {
		<-done
	}
	all, single := 0, 0
	for i, err := range errs {
		var taken *Taken
		switch {
		case err == nil && i%2 == 0:
			all++
		case err == nil:
			single++
		case !errors.As(err, &taken):
			t.Error(err)
		}
	}
	if all > 1 || all == 1 && single > 0 {
		t.Errorf("%d have the port of all addresses, and %d of one", all, single)
	}
	t.Logf("%d of all addresses, %d of one", all, single)
}
