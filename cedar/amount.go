package cedar

import (
	"math"
	"math/big"

	"github.com/cedar-policy/cedar-go/types"

	"sallyport.dev/sallyport"
)

// total is all the money that a call moves, as a decimal of Cedar's, which has
// four places and 64 bits: rounded away from zero, and the largest there is
// where it does not fit. So `amount.greaterThan(…)` never misses one.
func total(amounts []sallyport.Amount) (sum types.Decimal, currency string, ok bool) {
	if len(amounts) == 0 {
		return sum, "", false
	}
	all := new(big.Rat)
	for _, a := range amounts {
		v, readable := new(big.Rat).SetString(a.Value)
		if !readable || len(a.Value) > 64 {
			return largest(), a.Currency, true
		}
		all.Add(all, v.Abs(v))
	}
	all.Mul(all, big.NewRat(10_000, 1))
	units, rest := new(big.Int).QuoRem(all.Num(), all.Denom(), new(big.Int))
	if rest.Sign() != 0 {
		units.Add(units, big.NewInt(1))
	}
	if !units.IsInt64() {
		return largest(), amounts[0].Currency, true
	}
	d, err := types.NewDecimal(units.Int64(), -4)
	if err != nil {
		return largest(), amounts[0].Currency, true
	}
	return d, amounts[0].Currency, true
}

func largest() types.Decimal {
	d, err := types.NewDecimal(math.MaxInt64, -4)
	if err != nil {
		panic(err) // a constant
	}
	return d
}
