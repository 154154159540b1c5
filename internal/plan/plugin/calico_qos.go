// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"math"
	"strconv"
	"strings"
)

// qos are the limits and the DSCP that annotations set.
type qos struct {
	ingress, egress qosLimits
	dscp            *uint8
}

// qosLimits are the limits of one direction, as the pod sees it; 0 is none. Rates are in bits per second, bursts in
// bits, minburst in bytes.
type qosLimits struct {
	rate, burst, peak, minburst uint64
	packets, packetBurst        uint64 // per second, and the burst
	conns                       uint64 // concurrent connections
}

// valueRange is the range of valid values of an annotation.
type valueRange struct{ least, most float64 }

const (
	kilo, mega = 1e3, 1e6
	peta       = 1e15
	// defaultBurst is Calico's default: half a GiB, in bits.
	defaultBurst = 4 << 30
	// defaultPackets is the default burst in packets.
	defaultPackets = 5
)

// qos reads Calico's QoS annotations. They take precedence over Kubernetes' bandwidth annotations.
func (a *annotated) qos() qos {
	q := qos{ingress: a.limits("ingress"), egress: a.limits("egress")}
	if text := a.values[calicoQoS+"dscp"]; text != "" {
		value, ok := dscpOf(text)
		if !ok {
			a.fail(calicoQoS+"dscp", "0 to 63, or a name: EF, CS1, AF11 …", "%.60q is not a DSCP", text)
		}
		q.dscp = &value
	}
	return q
}

func (a *annotated) limits(direction string) qosLimits {
	key := calicoQoS + direction
	rates, bursts := valueRange{kilo, peta}, valueRange{kilo, math.MaxUint32 * 8}
	f := qosLimits{
		rate: a.quantity(kubeRate+direction+"-bandwidth", rates), burst: a.quantity(key+"Burst", bursts),
		peak:        a.quantity(key+"Peakrate", valueRange{1.01 * kilo, 1.01 * peta}),
		minburst:    a.quantity(key+"Minburst", valueRange{kilo, 100 * mega}),
		packets:     a.quantity(key+"PacketRate", valueRange{1, 10 * kilo}),
		packetBurst: a.quantity(key+"PacketBurst", valueRange{1, 10 * kilo}),
		conns:       a.quantity(key+"MaxConnections", valueRange{1, math.MaxUint32}),
	}
	if own := a.quantity(key+"Bandwidth", rates); own != 0 {
		f.rate = own
	}
	switch {
	case f.rate == 0 && f.burst != 0:
		a.fail(key+"Burst", "set "+key+"Bandwidth", "it has no effect without a bandwidth")
	case f.rate == 0 && f.peak != 0:
		a.fail(key+"Peakrate", "set "+key+"Bandwidth", "it has no effect without a bandwidth")
	case f.peak != 0 && f.peak <= f.rate:
		a.fail(key+"Peakrate", "the peak rate must be above the bandwidth", "%d is not more than the bandwidth %d",
			f.peak, f.rate)
	case f.peak == 0 && f.minburst != 0:
		a.fail(key+"Minburst", "set "+key+"Peakrate", "it has no effect without a peak rate")
	case f.packets == 0 && f.packetBurst != 0:
		a.fail(key+"PacketBurst", "set "+key+"PacketRate", "it has no effect without a packet rate")
	}
	if f.rate != 0 && f.burst == 0 {
		f.burst = defaultBurst
	}
	if f.packets != 0 && f.packetBurst == 0 {
		f.packetBurst = defaultPackets
	}
	return f
}

// quantity reads a Kubernetes quantity.
func (a *annotated) quantity(key string, within valueRange) uint64 {
	text := a.values[key]
	if text == "" {
		return 0
	}
	v, ok := parseQuantity(text)
	if !ok {
		a.fail(key, "for example 10M, 1500k or 2Gi", "%.60q is not a quantity", text)
		return 0
	}
	if v < within.least || v > within.most {
		a.fail(key, "", "%s is not between %s and %s", text, plain(within.least), plain(within.most))
		return 0
	}
	return uint64(math.Ceil(v))
}

func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// parseQuantity parses a decimal number with an exponent or a Kubernetes suffix.
func parseQuantity(text string) (float64, bool) {
	digits := strings.TrimRight(text, "numkKMGTPEi")
	if exponent := strings.TrimLeft(text, "+-.0123456789"); exponent != text && len(exponent) > 1 &&
		exponent[0]|0x20 == 'e' && exponent[1] != 'i' {
		digits = text
	}
	factor := 0.0
	switch text[len(digits):] {
	case "n":
		factor = 1e-9
	case "u":
		factor = 1e-6
	case "m":
		factor = 1e-3
	case "":
		factor = 1
	case "k":
		factor = 1e3
	case "M":
		factor = 1e6
	case "G":
		factor = 1e9
	case "T":
		factor = 1e12
	case "P":
		factor = 1e15
	case "E":
		factor = 1e18
	case "Ki":
		factor = 1 << 10
	case "Mi":
		factor = 1 << 20
	case "Gi":
		factor = 1 << 30
	case "Ti":
		factor = 1 << 40
	case "Pi":
		factor = 1 << 50
	case "Ei":
		factor = 1 << 60
	}
	if strings.ContainsFunc(digits, func(r rune) bool { return !strings.ContainsRune("+-.0123456789eE", r) }) {
		return 0, false
	}
	v, err := strconv.ParseFloat(digits, 64)
	return v * factor, err == nil && factor != 0
}

// dscpOf returns the code point of a number or a name (RFC 2474, 2597, 3246, 5865).
func dscpOf(text string) (uint8, bool) {
	if n, err := strconv.ParseUint(text, 10, 8); err == nil {
		return uint8(n), n < 64
	}
	name := strings.ToUpper(text)
	switch name {
	case "DF":
		return 0, true
	case "EF":
		return 46, true
	case "VA":
		return 44, true
	}
	if rest, ok := strings.CutPrefix(name, "CS"); ok && len(rest) == 1 && rest >= "0" && rest <= "7" {
		return (rest[0] - '0') * 8, true
	}
	if rest, ok := strings.CutPrefix(name, "AF"); ok && len(rest) == 2 && rest[0] >= '1' && rest[0] <= '4' &&
		rest[1] >= '1' && rest[1] <= '3' {
		return (rest[0]-'0')*8 + (rest[1]-'0')*2, true
	}
	return 0, false
}
