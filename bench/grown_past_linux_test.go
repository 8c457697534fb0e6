package main

import (
	"io"
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestPastIsTrue goes through small histories as a ledger would: versions of accounts have no gap, no balance is ever negative, what everybody has in the
// end is what it was moved, and each campaign sells its positions in order. The last round ends anywhere in it.
func TestPastIsTrue(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for _, accounts := range []int64{2, 7, 1000, 20_500} {
		for _, entries := range []int64{4, 7, 22, 39, 40, 41, 84} {
			p := newPast(accounts, accounts*entries+accounts/2, end.AddDate(-1, 0, 0), end)
			balance, version := make([]int64, accounts), make([]int64, accounts)
			sold := make([]int64, p.campaigns())
			names := map[int]bool{}
			for place := range version {
				version[place] = 1
				names[p.name(int64(place))] = true
			}
			if int64(len(names)) != accounts {
				t.Fatalf("%d accounts have %d names", accounts, len(names))
			}
			var last uuid.UUID
			purchase := int64(0)
			for i := range p.transfers {
				m := p.move(i)
				if id := pastID(p.at(i), idTransfer, i); string(id[:]) <= string(last[:]) || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
					t.Fatalf("transfer %d has the id %s, after %s", i, id, last)
				} else {
					last = id
				}
				if m.payer >= 0 {
					balance[m.payer] -= m.amount
					if version[m.payer]++; version[m.payer] != m.payerVersion || balance[m.payer] < 0 || m.payer == m.payee {
						t.Fatalf("%d accounts, transfer %d: %+v; the payer has version %d", accounts, i, m, version[m.payer])
					}
				}
				switch {
				case m.payee >= 0:
					balance[m.payee] += m.amount
					if version[m.payee]++; version[m.payee] != m.payeeVersion {
						t.Fatalf("%d accounts, transfer %d: %+v; the payee has version %d", accounts, i, m, version[m.payee])
					}
				default:
					if sold[m.campaign]++; sold[m.campaign] != m.seq || p.purchase(purchase) != i || p.opened(m.campaign).After(p.at(i)) {
						t.Fatalf("%d accounts, transfer %d: %+v; %d are sold", accounts, i, m, sold[m.campaign])
					}
					purchase++
				}
			}
			if purchase != p.purchases() {
				t.Errorf("%d accounts, %d transfers: %d purchases, not %d", accounts, p.transfers, purchase, p.purchases())
			}
			for k := range p.campaigns() {
				if at := p.opened(k); p.salesUntil(at) != p.firstSale(k) || p.salesUntil(at.Add(time.Microsecond)) != p.firstSale(k)+p.sold(k) {
					t.Errorf("%d accounts, %d transfers: campaign %d begins with sale %d, not %d", accounts, p.transfers, k, p.salesUntil(at), p.firstSale(k))
				}
			}
			for place := range balance {
				if p.finish[place] != balance[place] || p.version(int64(place)) != version[place] {
					t.Fatalf("%d accounts, %d transfers: the one at %d has %d and version %d, not %d and %d", accounts, p.transfers, place,
						p.finish[place], p.version(int64(place)), balance[place], version[place])
				}
			}
			for k := range sold {
				if p.sold(int64(k)) != sold[k] || sold[k] == 0 {
					t.Errorf("%d accounts, %d transfers: campaign %d sold %d, not %d", accounts, p.transfers, k, sold[k], p.sold(int64(k)))
				}
			}
			if i := p.until(p.at(p.transfers / 2)); i != p.transfers/2 {
				t.Errorf("%d transfers until the time of the one in the middle", i)
			}
		}
	}
}

// TestCopied reads rows in pieces of any size: all of them, once, between the header and the end.
func TestCopied(t *testing.T) {
	t.Parallel()
	written := int64(0)
	c := &copied{next: 3, end: 3 + 2*copyAtOnce + 1, row: func(t tuples, n int64) tuples { return t.row(1).bigint(n) }, written: func(n int64) { written += n }}
	var all []byte
	for size := 1; ; size = size*7%1000 + 1 {
		b := make([]byte, size)
		n, err := c.Read(b)
		all = append(all, b[:n]...)
		if err == io.EOF { //nolint:errorlint // As it is returned.
			break
		}
	}
	want := tuples("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	for n := int64(3); n < c.end; n++ {
		want = want.row(1).bigint(n)
	}
	if want = append(want, 0xff, 0xff); string(all) != string(want) || written != 2*copyAtOnce+1 {
		t.Errorf("%d bytes of %d numbers, want %d", len(all), written, len(want))
	}
}
