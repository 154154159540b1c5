// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "update the golden files")

func sample(nodes, pods int) Diagram {
	d := Diagram{
		Title: "lab demo", Lines: []string{"cluster 10.244.0.0/16 fd00:244::/48"},
		Wires: []Wire{
			{Name: "wire0", Lines: []string{"192.168.0.0/24", "fd00::/64"}}, {Name: "wire1", Lines: []string{"192.168.1.0/24"}},
		},
	}
	for i := range nodes {
		n := Node{Name: fmt.Sprintf("node%d", i+1), Lines: []string{fmt.Sprintf("pods 10.244.%d.0/24", i+1)}, Links: []Link{
			{Wire: "wire0", Name: "eth0", Lines: []string{fmt.Sprintf("192.168.0.%d", i+1), fmt.Sprintf("fd00::%d", i+1)}},
			{Wire: "wire1", Name: "eth1", Lines: []string{fmt.Sprintf("192.168.1.%d", i+1)}},
		}}
		for j := range pods + i {
			n.Pods = append(n.Pods, Pod{
				Name: fmt.Sprintf("default/web-%d", j), Lines: []string{fmt.Sprintf("10.244.%d.%d", i+1, j+2)},
				Bad: i == 1 && j == 1,
			})
		}
		d.Nodes = append(d.Nodes, n)
	}
	return d
}

func TestGolden(t *testing.T) {
	d := sample(3, 2)
	d.Nodes[2].Bad = true
	d.Wires = append(d.Wires, Wire{Name: "vxlan flannel.1", Lines: []string{"MTU 1450"}, Tunnel: true})
	for i := range 2 {
		d.Nodes[i].Links = append(d.Nodes[i].Links, Link{
			Wire: "vxlan flannel.1", Name: "flannel.1", Lines: []string{fmt.Sprintf("10.244.%d.0", i+1)},
		})
	}
	for name, got := range map[string]string{
		"three.dot": d.DOT(), "three.svg": d.SVG(), "three.txt": d.Text(), "three.json": asJSON(t, d),
	} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s (-want +got), update with -update:\n%s", name, d)
		}
	}
}

// TestNoOverlap checks that boxes do not overlap, that inner boxes are inside the outer one, and that text fits.
func TestNoOverlap(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := diagrams(r).layout()
		var nodes []box
		for _, row := range l.rows {
			nodes = append(nodes, row.bars...)
			for _, n := range row.nodes {
				nodes = append(nodes, n.box)
				parts := append(append([]box{n.label}, n.chips...), n.pods...)
				apart(r, parts)
				for i, p := range parts {
					if !inside(p, n.box) {
						r.Errorf("part %d %v of node %s outside %v", i, p, n.Name, n.box)
					}
				}
				for i, p := range n.pods {
					if w := (block{n.Pods[i].Name, n.Pods[i].Lines}).width(); w > p.w {
						r.Errorf("pod %d: text of %v in a box of %v", i, w, p.w)
					}
				}
			}
		}
		apart(r, nodes)
		for _, n := range nodes {
			if !inside(n, box{0, 0, l.w, l.h}) {
				r.Errorf("%v outside the picture %v x %v", n, l.w, l.h)
			}
		}
	})
}

// TestWellFormed checks that the SVG is valid XML for any text.
func TestWellFormed(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := diagrams(r)
		d.Title = rapid.String().Draw(r, "title")
		dec := xml.NewDecoder(strings.NewReader(d.SVG()))
		for {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				r.Fatal(err)
			}
		}
		if d.SVG() != d.SVG() || d.DOT() != d.DOT() {
			r.Error("two drawings of one diagram differ")
		}
	})
}

func diagrams(r *rapid.T) Diagram {
	word := rapid.StringN(0, 30, -1)
	words := rapid.SliceOfN(word, 0, 4)
	d := Diagram{Title: "t", Lines: words.Draw(r, "lines")}
	for i := range rapid.IntRange(0, 4).Draw(r, "wires") {
		d.Wires = append(d.Wires, Wire{Name: fmt.Sprint("w", i), Lines: words.Draw(r, "wire")})
	}
	for range rapid.IntRange(0, 12).Draw(r, "nodes") {
		n := Node{Name: word.Draw(r, "node"), Lines: words.Draw(r, "node lines")}
		for i := range rapid.IntRange(0, 5).Draw(r, "links") {
			n.Links = append(n.Links, Link{
				Wire: fmt.Sprint("w", i), Name: word.Draw(r, "link"), Lines: words.Draw(r, "link lines"),
			})
		}
		for range rapid.IntRange(0, 9).Draw(r, "pods") {
			n.Pods = append(n.Pods, Pod{Name: word.Draw(r, "pod"), Lines: words.Draw(r, "pod lines")})
		}
		d.Nodes = append(d.Nodes, n)
	}
	return d
}

func apart(r *rapid.T, boxes []box) {
	for i, a := range boxes {
		for _, b := range boxes[:i] {
			if a.x < b.x+b.w && b.x < a.x+a.w && a.y < b.y+b.h && b.y < a.y+a.h {
				r.Errorf("%v lies on %v", a, b)
			}
		}
	}
}

func inside(a, b box) bool {
	const eps = 1e-6
	return a.x >= b.x-eps && a.y >= b.y-eps && a.x+a.w <= b.x+b.w+eps && a.y+a.h <= b.y+b.h+eps
}

// asJSON is the diagram in the keys of -o json.
func asJSON(t *testing.T, d Diagram) string {
	t.Helper()
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}
