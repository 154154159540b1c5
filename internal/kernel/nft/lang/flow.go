// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// flow compiles "flow add @FLOWTABLE".
func (c *compiler) flow() error {
	c.pos++
	if err := c.expect("add"); err != nil {
		return err
	}
	name, ok := strings.CutPrefix(c.peek(), "@")
	if !ok {
		return fmt.Errorf("want @ and a flowtable's name at %s", c.position())
	}
	if !c.open && !slices.ContainsFunc(c.flows, func(f state.Flowtable) bool { return f.Name == name }) {
		return fmt.Errorf("no flowtable %q in this table, at %s", name, c.position())
	}
	c.pos++
	c.emit(Expr{Name: "flow_offload", Set: name})
	return nil
}

// flowtableText prints a flowtable as nft does.
func flowtableText(f state.Flowtable) string {
	devices := ""
	if len(f.Devices) > 0 {
		devices = fmt.Sprintf("\t\tdevices = { %s }\n", strings.Join(slices.Sorted(slices.Values(f.Devices)), ", "))
	}
	return fmt.Sprintf("\tflowtable %s {\n\t\thook ingress priority %s\n%s\t\tcounter\n\t}\n",
		f.Name, flowPriority(f.Priority), devices)
}

func flowPriority(n int) string {
	if n == 0 {
		return "filter"
	}
	return fmt.Sprint(n)
}
