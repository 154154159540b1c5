// SPDX-License-Identifier: Apache-2.0

package install

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestWalk: in any order of installing, removing, and vendors that install over everything, the vendors' last programs
// remain in the end, and none of weft's.
func TestWalk(t *testing.T) {
	if err := flag.Set("rapid.checks", "10"); err != nil { // each step writes programs to disk
		t.Fatal(err)
	}
	rapid.Check(t, func(r *rapid.T) {
		c := newDirs(t)
		theirs := listing(t, c.BinDir)
		ctx := t.Context()
		serial := 0
		r.Repeat(map[string]func(*rapid.T){
			"least": func(*rapid.T) { _, _ = Install(ctx, c) }, // refused if there is a vendor's weft-cni
			"plugins": func(r *rapid.T) {
				d := c
				d.Plugins = rapid.SliceOfDistinct(rapid.SampledFrom(allPlugins()), rapid.ID[string]).Draw(r, "plugins")
				d.Replace = rapid.Bool().Draw(r, "replace")
				if _, err := Install(ctx, d); err != nil && d.Replace {
					r.Fatal(err)
				}
			},
			"vendor": func(r *rapid.T) {
				name := rapid.SampledFrom(append(allPlugins(), shimName)).Draw(r, "name")
				serial++
				text := fmt.Sprint("vendor's ", serial)
				put(t, filepath.Join(c.BinDir, ".vendor"), text)
				if err := os.Rename(filepath.Join(c.BinDir, ".vendor"), filepath.Join(c.BinDir, name)); err != nil {
					r.Fatal(err)
				}
				theirs[name] = "-rwxr-xr-x " + text
			},
			"": func(r *rapid.T) { // after each step
				there := listing(t, c.BinDir)
				for name, is := range theirs {
					if there[name] != is && there[name+original] != is {
						r.Fatalf("%s of the vendor, %q, is lost: %q, %q", name, is, there[name], there[name+original])
					}
				}
			},
			"remove": func(r *rapid.T) {
				if _, err := Remove(ctx, c); err != nil {
					r.Fatal(err)
				}
				there := listing(t, c.BinDir)
				maps.DeleteFunc(there, func(name, _ string) bool { // a kept older one
					return strings.HasSuffix(name, original) && theirs[strings.TrimSuffix(name, original)] != ""
				})
				equal(t, "taken back", theirs, there)
			},
		})
	})
}
