// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/nettest"
)

// host is everything that an attachment may leave behind on a node, in words.
type host struct {
	Links, Addrs, Routes4, Routes6, Rules []map[string]any
	Nft                                   string
	Files                                 []string
}

// look reads the host; dirs are where files may be left.
func look(t testing.TB, dirs ...string) host {
	t.Helper()
	h := host{
		Links:   words(t, "ip", "-j", "link", "show"),
		Addrs:   words(t, "ip", "-j", "addr", "show"),
		Routes4: words(t, "ip", "-j", "route", "show", "table", "all"),
		Routes6: words(t, "ip", "-j", "-6", "route", "show", "table", "all"),
		Rules:   words(t, "ip", "-j", "rule", "show"),
		Nft:     nettest.Run(t, nil, "nft", "list", "ruleset"),
	}
	for _, dir := range dirs {
		h.Files = append(h.Files, filesIn(t, dir)...)
	}
	return h
}

// words runs ip and leaves out what differs between two looks at the same thing.
func words(t testing.TB, argv ...string) []map[string]any {
	t.Helper()
	var list []map[string]any
	out := nettest.Run(t, nil, argv...)
	if strings.TrimSpace(out) == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%s: %v", strings.Join(argv, " "), err)
	}
	for _, m := range list {
		forget(m)
	}
	// The kernel adds these when a link gets a carrier and has seen nobody else with its address.
	return slices.DeleteFunc(list, func(m map[string]any) bool {
		dst, _ := m["dst"].(string)
		return strings.HasPrefix(dst, "fe80:") || strings.HasPrefix(dst, "ff00:")
	})
}

func forget(m map[string]any) {
	for _, key := range []string{
		"ifindex", "link_index", "stats64", "valid_life_time", "preferred_life_time", "operstate",
		"flags", "expires", "link_netnsid", "tentative",
	} {
		delete(m, key)
	}
	if infos, ok := m["addr_info"].([]any); ok {
		for _, info := range infos {
			if mm, ok := info.(map[string]any); ok {
				forget(mm)
			}
		}
	}
}

// filesIn lists files, but for locks and the counters of host-local, which stay.
func filesIn(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		switch name := d.Name(); {
		case name == "gate", name == "turn", name == "lock", strings.HasPrefix(name, "last_reserved_ip"):
		default:
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// same waits a moment for the host to be as it was: the kernel takes links of a dead namespace in its own time.
func same(t testing.TB, what string, before host, dirs ...string) {
	t.Helper()
	diff := ""
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if diff = cmp.Diff(before, look(t, dirs...)); diff == "" {
			return
		}
	}
	t.Fatalf("%s: the host is not as before:\n%s", what, diff)
}
