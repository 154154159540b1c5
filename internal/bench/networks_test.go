// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

// The agent's delegates are the lists with which a peer's plugins are executed one after the other.
func TestAdditionalNetworks(t *testing.T) {
	c, err := ParseChain("x/bridge4.conflist",
		[]byte(`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"bridge","ipam":{"type":"host-local"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	lists, err := c.withNetworks(2).lists("/d")
	if err != nil || len(lists) != 3 {
		t.Fatalf("%d lists, %v", len(lists), err)
	}
	text, err := c.withNetworks(2).agentList("/d", "/s")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Plugins []struct {
			Type      string
			Delegates []json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	got := list.Plugins[0]
	if got.Type != "multus" || len(got.Delegates) != 3 {
		t.Errorf("%s", text)
	}
	for i, d := range got.Delegates {
		if d := cmp.Diff(string(lists[i]), string(d)); d != "" {
			t.Errorf("network %d: %s", i, d)
		}
	}
	if last := string(lists[2]); !strings.Contains(last, `"name":"wire2"`) ||
		!strings.Contains(last, `"dataDir":"/d/networks"`) || !strings.Contains(last, `"master":"up0"`) {
		t.Error(last)
	}
	if a, b := c.withNetworks(0).reportName(), c.withNetworks(8).reportName(); a != "bridge4" || b != "bridge4+8" {
		t.Errorf("%s %s", a, b)
	}
}

// Each implementation is compared with itself at the smallest number of networks, in the same cell.
func TestSelfRatios(t *testing.T) {
	s := newSamples()
	for i, n := range []int{1, 8} {
		for _, impl := range []string{"peer", "weft"} {
			s.add(impl, Cell{Concurrency: 1, Networks: n}, "add", "ms", float64(10*(i+1)))
		}
		s.add("weft", Cell{Concurrency: 1, Networks: n}, "cycles", "1/s", 5)
	}
	c := Chain{Name: "c"}
	got := selfRatios(s.rows(c, []string{"peer", "weft"}), NetworksConfig{Chain: c, Networks: []int{8, 1}})
	want := []Ratio{
		{Metric: "add", Chain: "c+8", Concurrency: 1, Peer: "peer c+1", Weft: "peer", Ratio: 2},
		{Metric: "add", Chain: "c+8", Concurrency: 1, Peer: "weft c+1", Weft: "weft", Ratio: 2},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestBadNumbersOfNetworks(t *testing.T) {
	for _, cfg := range []NetworksConfig{
		{},
		{N: 1, Impls: []Impl{{}}},
		{N: 1, Impls: []Impl{{}}, Networks: []int{-1}},
		{N: 1, Impls: []Impl{{}}, Networks: []int{maxNetworks + 1}},
	} {
		_, err := Networks(t.Context(), cfg)
		var f *model.Error
		if !errors.As(err, &f) || f.Code != model.CodeInvalidConf || f.Hint == "" {
			t.Errorf("%+v: %v", cfg.Networks, err)
		}
	}
}
