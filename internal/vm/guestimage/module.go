// SPDX-License-Identifier: Apache-2.0

package guestimage

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// drivers are the drivers that a guest may need; those that the kernel has built in, or lacks, are skipped.
func drivers() []string {
	return []string{"virtio_pci", "virtio_net", "e1000", "e1000e", "8139cp", "button", "evdev"}
}

// module is a kernel module by the name of its file.
type module struct {
	name    string
	data    []byte
	depends []string
}

const suffix = ".ko"

// modules returns the modules of a kernel in load order.
func modules(dir string) ([]module, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	all := map[string]module{}
	for _, path := range paths {
		m, err := readModule(path)
		if err != nil {
			return nil, err
		}
		all[strings.ReplaceAll(strings.TrimSuffix(m.name, suffix), "-", "_")] = m
	}
	return loadOrder(all), nil
}

func readModule(path string) (module, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return module{}, err
	}
	deps, err := depends(b)
	return module{name: filepath.Base(path), data: b, depends: deps}, err
}

// loadOrder sorts modules after their dependencies.
func loadOrder(all map[string]module) []module {
	var out []module
	seen := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		m, ok := all[name]
		if !ok || seen[name] {
			return
		}
		seen[name] = true
		for _, d := range m.depends {
			add(d)
		}
		out = append(out, m)
	}
	for _, name := range drivers() {
		add(name)
	}
	return out
}

// depends returns the dependencies of a module.
func depends(b []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, errors.New("the module has no .modinfo section")
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(string(info), "\x00") {
		if names, ok := strings.CutPrefix(line, "depends="); ok && names != "" {
			return strings.Split(strings.ReplaceAll(names, "-", "_"), ","), nil
		}
	}
	return nil, nil
}

// checkStatic checks that a program needs no shared libraries, which the guest does not have.
func checkStatic(b []byte) error {
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return errors.New("it is dynamically linked; it must be static")
	}
	return nil
}
