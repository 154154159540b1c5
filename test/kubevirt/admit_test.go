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

// spoken finds what weft says of fields: a path, and why.
var spoken = regexp.MustCompile(`(spec(?:\.[A-Za-z0-9]+(?:\[\d+\])?)+): (.*?)(?:; spec\.|\n|$)`)

// more are weft's own rules, beyond those of this part of KubeVirt's.
var more = regexp.MustCompile(
	`is the address of interface|is the index of interface|is the place of|is no place in the order|no binding plugin` +
		`|carried by a process|from resource claims|is no index|is no subnet|has no room|has no addresses|an option holds|bound by masquerade already|is not a unicast address` +
		`|overlaps the pod's own`)

// complaint is one of weft's, or of KubeVirt's.
type complaint struct{ field, why string }

// refused is what weft says of a machine.
func refused(t *testing.T, file string) (out []complaint) {
	t.Helper()
	said, err := try(program("weft"), "vm", "plan", "--binding", "managed=managedTap", file)
	if err == nil {
		return nil
	}
	text := err.Error()
	for at := 0; ; {
		found := spoken.FindStringSubmatchIndex(text[at:])
		if found == nil {
			break
		}
		out = append(out, complaint{text[at+found[2] : at+found[3]], text[at+found[4] : at+found[5]]})
		at += found[5]
	}
	if len(out) == 0 {
		t.Fatalf("weft fails without a field: %v %s", err, said)
	}
	return out
}

// about tells whether a field is the one that somebody else names, or a part of it. KubeVirt names an interface's name,
// a list or the whole machine where it means something of that.
func about(weft, kubevirt string) bool {
	kubevirt = strings.TrimSuffix(kubevirt, ".name")
	if kubevirt == "spec.interfaces" { // there is no such field
		kubevirt = "spec.networks"
	}
	rest, ok := strings.CutPrefix(weft, kubevirt)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func twice(c complaint) bool {
	return strings.HasPrefix(c.field, "spec.networks[") &&
		(strings.Contains(c.why, "stands before it") || strings.Contains(c.why, "are both the pod's default"))
}

// compare has KubeVirt and weft judge machines.
func compare(t *testing.T, machines []v1.VirtualMachineInstance, table io.Writer) (both, fine int) {
	t.Helper()
	in, err := json.Marshal(machines)
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
	if err := json.Unmarshal(text, &theirs); err != nil || len(theirs) != len(machines) {
		t.Fatalf("%v: %s", err, text)
	}
	file := filepath.Join(t.TempDir(), "vm.json")
	for i, vmi := range machines {
		text, err := json.Marshal(vmi)
		if err == nil {
			err = os.WriteFile(file, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		ours := refused(t, file)
		var wrong []string
		write(table, theirs[i], ours)
		for _, c := range theirs[i] {
			if strings.HasPrefix(c.Message, "Macvtap network binding") { // weft has it
				continue
			}
			if !slices.ContainsFunc(ours, func(o complaint) bool { return about(o.field, c.Field) }) {
				wrong = append(wrong, fmt.Sprintf("KubeVirt alone: %s: %s", c.Field, c.Message))
			}
		}
		for _, o := range ours {
			if !more.MatchString(o.why) && !slices.ContainsFunc(theirs[i], func(c metav1.StatusCause) bool {
				return about(o.field, c.Field)
			}) {
				wrong = append(wrong, fmt.Sprintf("weft alone: %s: %s", o.field, o.why))
			}
		}
		if slices.ContainsFunc(ours, twice) && len(theirs[i]) > 0 { // which of two networks does the rest mean?
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

// write adds a line to a table of what both say.
func write(table io.Writer, theirs []metav1.StatusCause, ours []complaint) {
	var left, right []string
	for _, c := range theirs {
		left = append(left, fmt.Sprintf("`%s` %s", c.Field, c.Message))
	}
	for _, o := range ours {
		right = append(right, fmt.Sprintf("`%s` %s", o.field, o.why))
	}
	_, _ = fmt.Fprintf(table, "| %s | %s |\n", strings.Join(left, "; "), strings.Join(right, "; "))
}

// TestAdmitted: machines made at random, good and bad, are judged by KubeVirt's webhook and by weft.
func TestAdmitted(t *testing.T) {
	random := rand.New(rand.NewPCG(seed(), 9))
	var machines []v1.VirtualMachineInstance
	for range 400 {
		machines = append(machines, anyMachine(random))
	}
	both, fine := compare(t, machines, io.Discard)
	t.Logf("%d machines: %d refused by both, %d by nobody", len(machines), both, fine)
	if both < 100 || fine < 50 {
		t.Error("too few of a kind to say much")
	}
}
