// SPDX-License-Identifier: Apache-2.0

package doctor

import "strconv"

// conntrackFull warns when the conntrack table is nearly full. When it is full, the kernel drops packets of new
// connections, which is bad.
func conntrackFull(count, most string) []Finding {
	have, errHave := strconv.ParseUint(count, 10, 64)
	limit, errLimit := strconv.ParseUint(most, 10, 64)
	if errHave != nil || errLimit != nil || limit == 0 || have*10 < limit*9 {
		return nil
	}
	if have >= limit {
		return bad("raise net.netfilter.nf_conntrack_max", "conntrack has %d of %d entries: new connections are dropped", have, limit)
	}
	return warn("raise net.netfilter.nf_conntrack_max",
		"conntrack has %d of %d entries: when it is full, new connections are dropped", have, limit)
}
