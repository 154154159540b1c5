// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"testing"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/state"
)

// FuzzRule: any text that compiles has one canonical spelling, which compiles to the same expressions.
func FuzzRule(f *testing.F) {
	for _, t := range []state.Table{masq(), everything(), filter(), plainIP(), learning()} {
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				f.Add(r.Text)
			}
		}
	}
	f.Add("meta nfproto ipv4 meta l4proto tcp ip saddr 1.1.1.1 th dport 0x50 counter accept")
	f.Add("ip saddr 0.0.0.0/0 ct state established , related accept")
	f.Add("tcp flags & 64 != 0")
	f.Add("icmpv6 type 1 @th,64,8 5 @th,256,128 fd00::/16")
	all := everything()
	all.Sets = append(all.Sets, learning().Sets...)
	house, err := lang.CompileTable(all)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		es, err := house.CompileRule(text)
		if err != nil {
			return
		}
		spelled := lang.Decompile(house.Family, es)
		if spelled == lang.ForeignRule || spelled == "" {
			t.Fatalf("%q compiles and does not decompile: %+v", text, es)
		}
		again, err := house.CompileRule(spelled)
		if err != nil {
			t.Fatalf("%q is spelled %q, which does not compile: %v", text, spelled, err)
		}
		if twice := lang.Decompile(house.Family, again); twice != spelled {
			t.Fatalf("%q is spelled %q, then %q", text, spelled, twice)
		}
	})
}

// FuzzAnswers: decoding any bytes from a socket ends without a panic.
func FuzzAnswers(f *testing.F) {
	b := &batch{}
	compiled, err := lang.CompileTable(everything())
	if err != nil {
		f.Fatal(err)
	}
	t := &table{Table: *compiled}
	for i, s := range t.Sets {
		b.putSet(t, s, uint32(i))
		b.putElements(12, t, s, s.Elements, len(s.Elements))
	}
	for _, c := range t.Chains {
		b.putChain(t, c)
		for _, r := range c.Rules {
			b.putRule(t, c.Name, r, 0)
		}
	}
	b.Close()
	f.Add(b.Bytes())
	f.Fuzz(func(_ *testing.T, data []byte) {
		netlink.Messages(data, func(a netlink.Answer) {
			family, body, ok := a.Netfilter()
			if !ok {
				return
			}
			s, _, _ := decodeSet(body)
			for _, e := range joinRanges(s, appendElements(nil, body)) {
				s.State(e)
			}
			decodeChain(family, body)
			decodeRule(family, body)
		})
	})
}
