// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// fieldError matches weft's messages about fields: a path and the reason.
var fieldError = regexp.MustCompile(`(spec(?:\.[A-Za-z0-9]+(?:\[\d+\])?)+): (.*?)(?:; spec\.|\n|$)`)

// weftOnly are weft's own rules, beyond those of this part of KubeVirt's.
var weftOnly = regexp.MustCompile(
	`is the address of interface|is already the (?:address|ACPI index|boot order) of|is not a boot order|binding plugin "[^"]*" is not known` +
		`|passt is not supported|from resource claims|is not an ACPI index|is not a subnet|is too small for|has no addresses|bytes; the maximum is|already has the masquerade binding|is not a unicast address` +
		`|overlaps the pod's own`)

// finding is an error of weft or KubeVirt.
type finding struct{ field, why string }

// weftFindings returns weft's errors for a VMI.
func weftFindings(t *testing.T, file string) (out []finding) {
	t.Helper()
	said, err := try(program("weft"), "vm", "plan", "--binding", "managed=managedTap", file)
	if err == nil {
		return nil
	}
	text := err.Error()
	for at := 0; ; {
		found := fieldError.FindStringSubmatchIndex(text[at:])
		if found == nil {
			break
		}
		out = append(out, finding{text[at+found[2] : at+found[3]], text[at+found[4] : at+found[5]]})
		at += found[5]
	}
	if len(out) == 0 {
		t.Fatalf("weft fails without a field: %v %s", err, said)
	}
	return out
}

// matches reports whether a field is the one that KubeVirt names, or a part of it. KubeVirt sometimes names an
// interface's name, a list or the whole VMI instead of a field in it.
func matches(weft, kubevirt string) bool {
	kubevirt = strings.TrimSuffix(kubevirt, ".name")
	if kubevirt == "spec.interfaces" { // no such field exists
		kubevirt = "spec.networks"
	}
	rest, ok := strings.CutPrefix(weft, kubevirt)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func twice(c finding) bool {
	return strings.HasPrefix(c.field, "spec.networks[") &&
		(strings.Contains(c.why, "duplicate network name") || strings.Contains(c.why, "are both the pod's default"))
}

// compare validates VMIs by KubeVirt and weft.
func compare(t *testing.T, vmis []v1.VirtualMachineInstance, table io.Writer) (both, fine int) {
	t.Helper()
	in, err := json.Marshal(vmis)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program("kubevirt-net"), "admit")
	cmd.Stdin = bytes.NewReader(in)
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var theirs [][]metav1.StatusCause
	if err := json.Unmarshal(text, &theirs); err != nil || len(theirs) != len(vmis) {
		t.Fatalf("%v: %s", err, text)
	}
	file := filepath.Join(t.TempDir(), "vm.json")
	for i, vmi := range vmis {
		text, err := json.Marshal(vmi)
		if err == nil {
			err = os.WriteFile(file, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		ours := weftFindings(t, file)
		var wrong []string
		write(table, theirs[i], ours)
		for _, c := range theirs[i] {
			if strings.HasPrefix(c.Message, "Macvtap network binding") { // weft supports it
				continue
			}
			if !slices.ContainsFunc(ours, func(o finding) bool { return matches(o.field, c.Field) }) {
				wrong = append(wrong, fmt.Sprintf("KubeVirt alone: %s: %s", c.Field, c.Message))
			}
		}
		for _, o := range ours {
			if !weftOnly.MatchString(o.why) && !slices.ContainsFunc(theirs[i], func(c metav1.StatusCause) bool {
				return matches(o.field, c.Field)
			}) {
				wrong = append(wrong, fmt.Sprintf("weft alone: %s: %s", o.field, o.why))
			}
		}
		if slices.ContainsFunc(ours, twice) && len(theirs[i]) > 0 { // the rest is ambiguous
			wrong = nil
		}
		if len(wrong) > 0 {
			nice, _ := yaml.Marshal(vmi.Spec)
			t.Errorf("%s\n%s", strings.Join(wrong, "\n"), nice)
		}
		switch {
		case len(ours) > 0 && len(theirs[i]) > 0:
			both++
		case len(ours) == 0:
			fine++
		}
	}
	return both, fine
}

func seed() uint64 {
	n, _ := strconv.ParseUint(os.Getenv("WEFT_SEED"), 10, 64)
	return n
}

// write adds a row with both messages to a table.
func write(table io.Writer, theirs []metav1.StatusCause, ours []finding) {
	var left, right []string
	for _, c := range theirs {
		left = append(left, fmt.Sprintf("`%s` %s", c.Field, c.Message))
	}
	for _, o := range ours {
		right = append(right, fmt.Sprintf("`%s` %s", o.field, o.why))
	}
	_, _ = fmt.Fprintf(table, "| %s | %s |\n", strings.Join(left, "; "), strings.Join(right, "; "))
}

// TestAdmitted: random VMIs, valid and invalid, are validated by KubeVirt's webhook and by weft.
func TestAdmitted(t *testing.T) {
	random := rand.New(rand.NewPCG(seed(), 9))
	var vmis []v1.VirtualMachineInstance
	for range 400 {
		vmis = append(vmis, randomVMI(random))
	}
	both, fine := compare(t, vmis, io.Discard)
	t.Logf("%d VMIs: %d rejected by both, %d by neither", len(vmis), both, fine)
	if both < 100 || fine < 50 {
		t.Error("too few of a kind")
	}
}
