// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"io"
	"os"
	"strings"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// readResolvConf reads a resolv.conf(5) file, as the reference plugin does.
func readResolvConf(name string) (model.DNS, error) {
	const most = 1 << 16 // bytes
	f, err := os.Open(name)
	if err != nil {
		return model.DNS{}, ipam.Invalid("", "ipam.resolvConf %q: %w", name, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return model.DNS{}, ipam.Invalid("", "ipam.resolvConf %q: %w", name, err)
	}
	return parseResolvConf(string(b)), nil
}

func parseResolvConf(text string) model.DNS {
	var dns model.DNS
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") || strings.HasPrefix(fields[0], ";") {
			continue
		}
		switch fields[0] {
		case "nameserver":
			dns.Nameservers = append(dns.Nameservers, fields[1])
		case "domain":
			dns.Domain = fields[1]
		case "search":
			dns.Search = append(dns.Search, fields[1:]...)
		case "options":
			dns.Options = append(dns.Options, fields[1:]...)
		}
	}
	return dns
}
