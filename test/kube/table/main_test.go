// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	const in = `<testsuites><testsuite>
<testcase name="[It] [sig-network] b | c" status="passed" time="1.6"></testcase>
<testcase name="[SynchronizedBeforeSuite]" status="passed" time="1"></testcase>
<testcase name="[It] [sig-network] skipped" status="skipped" time="0"><skipped message="x"></skipped></testcase>
<testcase name="[It] [sig-network] a" status="failed" time="2"><failure message="no answer&#xA;more"></failure></testcase>
</testsuite></testsuites>`
	const want = `weft: 1 specs of Kubernetes' [sig-network] passed, 1 failed.

| spec | | s | why |
|---|---|---|---|
| [sig-network] a | failed | 2 | no answer |
| [sig-network] b \| c | passed | 2 |  |
`
	var out strings.Builder
	if err := table(&out, strings.NewReader(in), "weft"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
