// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
)

func compiled(b *testing.B) *table {
	b.Helper()
	pods := make([]string, 100)
	for i := range pods {
		pods[i] = fmt.Sprintf("10.1.0.%d", i+1)
	}
	t, err := lang.CompileTable(masq(pods...))
	if err != nil {
		b.Fatal(err)
	}
	return &table{Table: *t}
}

// BenchmarkEncode writes a table of 4 sets, 200 elements and 6 rules.
func BenchmarkEncode(b *testing.B) {
	t := compiled(b)
	b.ReportAllocs()
	for b.Loop() {
		encoded(t)
	}
}

// BenchmarkDecode reads the messages of such a table.
func BenchmarkDecode(b *testing.B) {
	data := encoded(compiled(b))
	b.ReportAllocs()
	for b.Loop() {
		sets, elements, rules := decoded(data)
		if sets != 4 || elements != 200 || rules != 6 {
			b.Fatal(sets, elements, rules)
		}
	}
}

func encoded(t *table) []byte {
	b := &batch{}
	for i, s := range t.Sets {
		b.putSet(t, s, uint32(i))
		b.putElements(unix.NFT_MSG_NEWSETELEM, t, s, s.Elements, len(s.Elements))
	}
	for _, c := range t.Chains {
		b.putChain(t, c)
		for _, r := range c.Rules {
			b.putRule(t, c.Name, r, 0)
		}
	}
	b.Close()
	return b.Bytes()
}

func decoded(data []byte) (sets, elements, rules int) {
	netlink.Messages(data, func(a netlink.Answer) {
		family, body, _ := a.Netfilter()
		switch a.Kind & 0xff {
		case unix.NFT_MSG_NEWSET:
			if s, _, _ := decodeSet(body); len(s.Name) > 0 {
				sets++
			}
		case unix.NFT_MSG_NEWSETELEM:
			elements += len(appendElements(nil, body))
		case unix.NFT_MSG_NEWRULE:
			if r := decodeRule(family, body); len(r.Exprs) > 0 {
				rules++
			}
		}
	})
	return sets, elements, rules
}
