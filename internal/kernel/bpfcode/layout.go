// SPDX-License-Identifier: Apache-2.0

package bpfcode

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// Layout finds fields of the kernel's structures.
type Layout struct {
	specs []*btf.Spec // of the kernel, and of a module
	errs  []error
}

// ReadLayout reads the layout of the running kernel. The structures of a part that distributions build as a module, such as
// nf_conntrack, are found if that is named.
func ReadLayout(module string) (*Layout, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("the kernel has no BTF (CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	l := &Layout{specs: []*btf.Spec{kernel}}
	if module != "" {
		if spec, err := btf.LoadKernelModuleSpec(module); err == nil { // else it is a part of the kernel, or not loaded
			l.specs = append(l.specs, spec)
		}
	}
	return l, nil
}

// Err returns what was not found since the Layout was read.
func (l *Layout) Err() error {
	if err := errors.Join(l.errs...); err != nil {
		return fmt.Errorf("the kernel's BTF: %w", err)
	}
	return nil
}

// Find finds a type by its name; to is a pointer to a pointer to a type of package btf.
func (l *Layout) Find(name string, to any) (err error) {
	for _, spec := range l.specs {
		if err = spec.TypeByName(name, to); err == nil {
			return nil
		}
	}
	return err
}

// Offset returns the offset of a field in bytes, where path is the way through structures, unions and first elements of
// arrays. What is not found is in Err.
func (l *Layout) Offset(structure string, path ...string) int {
	m := l.field(structure, path)
	return int(m.Offset / 8)
}

// Size returns the size of a structure in bytes.
func (l *Layout) Size(structure string) int {
	var s *btf.Struct
	if err := l.Find(structure, &s); err != nil {
		l.errs = append(l.errs, fmt.Errorf("struct %s: %w", structure, err))
		return 0
	}
	return int(s.Size)
}

// Value returns the number of a value of an enumeration.
func (l *Layout) Value(enum, name string) int {
	var e *btf.Enum
	if err := l.Find(enum, &e); err != nil {
		l.errs = append(l.errs, fmt.Errorf("enum %s: %w", enum, err))
		return 0
	}
	for _, v := range e.Values {
		if v.Name == name {
			return int(v.Value)
		}
	}
	l.errs = append(l.errs, fmt.Errorf("enum %s has no %s", enum, name))
	return 0
}

func (l *Layout) field(structure string, path []string) (m btf.Member) {
	var s *btf.Struct
	if err := l.Find(structure, &s); err != nil {
		l.errs = append(l.errs, fmt.Errorf("struct %s: %w", structure, err))
		return m
	}
	m, ok := memberOf(s.Members, path)
	if !ok {
		l.errs = append(l.errs, fmt.Errorf("struct %s has no field %v", structure, path))
	}
	return m
}

// memberOf returns a field with its offset from the outermost structure. Members without a name are parts of theirs.
func memberOf(members []btf.Member, path []string) (btf.Member, bool) {
	for _, m := range members {
		inner := membersOf(m.Type)
		var found btf.Member
		ok := false
		switch {
		case m.Name == path[0] && len(path) == 1:
			return m, true
		case m.Name == path[0]:
			found, ok = memberOf(inner, path[1:])
			if !ok {
				return found, false
			}
		case m.Name == "":
			found, ok = memberOf(inner, path)
		}
		if ok {
			found.Offset += m.Offset
			return found, true
		}
	}
	return btf.Member{}, false
}

func membersOf(t btf.Type) []btf.Member {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		return t.Members
	case *btf.Union:
		return t.Members
	case *btf.Array:
		return membersOf(t.Type)
	}
	return nil
}
