// Orders numbers. Gets the arguments alone.
export async function order({ values, descending }) {
  const sign = descending ? -1 : 1;
  return { values: values.toSorted((a, b) => sign * (a - b)) };
}
