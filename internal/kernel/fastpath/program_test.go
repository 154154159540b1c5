// SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"bytes"
	"encoding/binary"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/weft-net/weft/internal/nettest"
)

var update = flag.Bool("update", false, "compile the programs, with clang 14")

// TestProgram: the committed programs are what fastpath.c compiles to, and its maps are those of this package.
//
//	go test ./internal/kernel/fastpath -run TestProgram -update
func TestProgram(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "clang", "--version").Output(); err != nil || !bytes.Contains(out, []byte("version 14.")) {
		nettest.SkipMissing(t, "clang 14, which compiles the programs: apt-get install clang llvm libbpf-dev")
	}
	object := filepath.Join(t.TempDir(), "fastpath.o")
	if out, err := exec.CommandContext(t.Context(), "./build.sh", object).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mapSpecs() {
		c := spec.Maps[m.Name]
		if c == nil || c.Type != m.Type || c.KeySize != m.KeySize || c.ValueSize != m.ValueSize || c.MaxEntries != m.MaxEntries ||
			c.Flags != m.Flags {
			t.Errorf("map %s: %+v, in fastpath.c %+v", m.Name, m, c)
		}
	}
	for file, c := range map[string]struct{ name, have string }{"in.bpf": {nameIn, codeIn}, "out.bpf": {nameOut, codeOut}} {
		var b bytes.Buffer
		for _, ins := range spec.Programs[c.name].Instructions {
			if ins.IsLoadFromMap() {
				i := slices.IndexFunc(mapSpecs(), func(m ebpf.MapSpec) bool { return m.Name == ins.Reference() })
				ins.Src, ins.Constant = asm.PseudoMapFD, int64(i)
			}
			if _, err := ins.Marshal(&b, binary.LittleEndian); err != nil {
				t.Fatal(err)
			}
		}
		if *update {
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if b.String() != c.have {
			t.Errorf("%s is not what fastpath.c compiles to: run this test with -update", file)
		}
	}
}
