// SPDX-License-Identifier: Apache-2.0

package doctor

import "strconv"

// conntrack says when the table of connections is nearly full: then new ones are dropped, without a word to anybody.
func conntrack(count, most string) []Finding {
	have, errHave := strconv.ParseUint(count, 10, 64)
	limit, errLimit := strconv.ParseUint(most, 10, 64)
	if errHave != nil || errLimit != nil || limit == 0 || have*10 < limit*9 {
		return nil
	}
	return warn("raise net.netfilter.nf_conntrack_max",
		"%d of %d connections are tracked: new ones will be dropped", have, limit)
}
